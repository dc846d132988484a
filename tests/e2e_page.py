#!/usr/bin/env python3
"""The viewer page in a real Chromium against the real server: a prompt becomes a moving picture, by WebCodecs, MSE and JPEG; prompt
switch, pause, seek, a second viewer, a lost connection, errors; then the embedded model as somebody new would try it.
LONGTAKE_PICTURES=DIR keeps screenshots, LONGTAKE_WATCH=S watches the embedded model for so many seconds and prints how often it stalled."""
import asyncio
import os
import signal

import browser
import e2e
from browser import Browser, Page
from e2e import check
from serve import Server

e2e.make_model()
KEEP = os.environ.get("LONGTAKE_PICTURES")
# type, choose, click, as a person would
ASK = """(() => { for (const [id, v] of Object.entries(%s)) { const e = document.getElementById(id); e.value = v; e.dispatchEvent(new Event("input", {bubbles: true})); }
  document.getElementById("go").click(); return true; })()"""
ASK_TWICE = ASK.replace("return true", 'document.getElementById("go").click(); return true')
# how much the picture varies: 0 for one colour
SPREAD = """(() => { const c = document.createElement("canvas"); c.width = c.height = 32; const x = c.getContext("2d");
  x.drawImage(document.getElementById("canvas").hidden ? document.getElementById("video") : document.getElementById("canvas"), 0, 0, 32, 32);
  const d = x.getImageData(0, 0, 32, 32).data; let lo = 255, hi = 0; for (let i = 0; i < d.length; i += 4) { lo = Math.min(lo, d[i]); hi = Math.max(hi, d[i]); } return hi - lo; })()"""
FORM = '{prompt: "a red ball", "f-steps": 2, "f-guidance": 1, "f-seconds": %d}'


# the mean colour of the picture
MEAN = SPREAD.replace("return hi - lo", "const m = [0, 0, 0]; for (let i = 0; i < d.length; i++) if (i % 4 < 3) m[i % 4] += d[i] / 1024; return m")


async def shot(page, name):
    if KEEP:
        await page.picture(os.path.join(KEEP, name + ".png"))


async def plays(page, kind, seconds=600):
    """From the click to pictures that move on."""
    check(await page.until("longtake.welcome && longtake.welcome.ready"), kind + ": the page connects")
    await page.run(ASK_TWICE % (FORM % seconds))
    first = await page.until("longtake.firstPicture && longtake.firstPicture - longtake.clicked")
    check(first, kind + ": a first picture")
    print("%s: first picture %.0f ms after the click" % (kind, first or -1))
    check(await page.run("longtake.kind") == kind, "%s: by %s" % (kind, await page.run("longtake.kind")))
    check(await page.run("!document.querySelector('#stop').hidden"), kind + ": still being generated")
    check(await page.until("longtake.shown > 1000000"), kind + ": it moves on")
    check(await page.run("document.getElementById('alert').hidden"), kind + ": a double click is one: %r" % await page.run("document.getElementById('alert-text').textContent"))
    check(await page.run(SPREAD) > 8, kind + ": and is not one colour")


async def press(page, key):
    """A key as the browser gets it."""
    code = {" ": ("Space", 32)}[key]
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key, code=code[0], windowsVirtualKeyCode=code[1], text=key if kind == "keyDown" else "")


async def main():
    server = Server()
    chromium = Browser()
    url = "http://127.0.0.1:%d/" % server.port
    try:
        server.wait_ready()
        server.request("POST", "/v1/videos", '{"prompt": "made on request", "num_frames": 5, "mode": "ar"}', {"Content-Type": "application/json"})
        async with Page(chromium, url) as page:
            await page.until("longtake.welcome")
            check(await page.until("document.querySelector('#jobs button:enabled')?.textContent") == "readymade on request", "the page lists what was made on request")
            check(await page.until("document.querySelector('#jobs img')?.naturalWidth === 64"), "with its first picture")
            await page.run("document.querySelector('#jobs button').focus()")
            server.request("POST", "/v1/videos", '{"prompt": "another", "num_frames": 5, "mode": "ar"}', {"Content-Type": "application/json"})
            await page.run("dispatchEvent(new Event('focus'))")
            check(await page.until("document.querySelectorAll('#jobs button:enabled').length === 2"), "and the next one")
            check(await page.run("document.activeElement.textContent") == "readymade on request", "whoever is on a line with the keyboard stays there")
            await page.run("document.getElementById('more').open = true, document.getElementById('f-reliable').focus()")
            for want in (True, False):
                await press(page, " ")
                check(await page.run("document.getElementById('f-reliable').checked") is want, "a box is ticked by the space bar: %r" % want)
            await shot(page, "idle")
            await plays(page, "webcodecs")
            await shot(page, "playing")
            # a second viewer, late, by the link
            link = await page.run("location.origin + '/?watch=' + longtake.session.session_id + '&key=' + longtake.session.key")
            async with Page(chromium, link) as viewer:
                check(await viewer.until("longtake.firstPicture"), "a second viewer sees it")
                await page.run(ASK % '{prompt: "a blue square"}')
                check(await page.until("longtake.prompts.length === 2 && longtake.prompts[1].text === 'a blue square'"), "the prompt changes")
                check(await viewer.until("longtake.prompts.length === 2"), "and the viewer is told")
                check(await viewer.run("document.getElementById('go').hidden"), "who cannot change it")
                check(not viewer.errors, "no errors: %r" % viewer.errors)
            await page.until("longtake.shown > longtake.prompts[1].pts")
            check(await page.run("longtake.session.request.mode === 'ar' && document.getElementById('n-level').textContent >= '0'"), "blocks without being asked, and their drift")
            # keys: pause, on, back, to now
            await page.run("document.activeElement.blur()")
            for key, test, what in ((" ", "longtake.held === true", "space pauses"), (" ", "longtake.held === false", "and goes on"),
                                    ("ArrowLeft", "longtake.behind && longtake.seeking === null", "back"), ("l", "!longtake.behind && longtake.seeking === null", "to the newest")):
                await page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))" % key)
                check(await page.until(test), "keys: " + what)
            shown = await page.run("longtake.drawn")
            check(await page.until("longtake.drawn > %d" % (shown + 5)), "it plays on")
            await page.run("document.getElementById('play').click()")
            check(await page.until("longtake.held === true"), "paused")
            for kind in ("webcodecs", "mse", "jpeg"):
                async with Page(chromium, link + "&player=" + kind) as viewer:
                    check(await viewer.until("longtake.firstPicture && longtake.held && document.getElementById('wait').hidden"), kind + ": who joins a video that stands sees where")
            shown, drawn = await page.run("[longtake.shown, longtake.drawn]")
            await page.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}))")
            check(await page.until("longtake.seeking === null && longtake.drawn > %d" % drawn) and await page.run("longtake.held && longtake.shown <= %d" % (shown - 1900000)), "an earlier picture, still paused")
            made = await page.run("document.getElementById('play').click(), longtake.made")
            check(await page.until("!longtake.held && longtake.made > %g" % (made + 0.5)), "and on from there, the drawing too")
            await page.run("document.getElementById('edge').click()")
            check(await page.until("!longtake.behind && longtake.seeking === null"), "to the newest")
            await page.run("document.getElementById('play').click()")
            check(await page.until("longtake.held === true && longtake.stands"), "paused again")
            made = await page.run("document.getElementById('edge').click(), longtake.made")
            check(await page.until("longtake.made > %g" % (made + 2)), "who goes elsewhere from a pause is not left with a drawing that stands")
            # a lost connection
            before = await page.run("longtake.dropped")
            await page.run("longtake.ws.close()")
            shown = await page.run("longtake.drawn")
            check(await page.until("longtake.ws && longtake.ws.readyState === 1 && longtake.drawn > %d" % (shown + 24)), "it comes back by itself")
            check(await page.run("longtake.dropped") == before, "and nothing was left out")
            # the end comes while the picture waits
            await page.run("longtake.player.push = () => {}")
            check(await page.until("!document.getElementById('wait').hidden"), "the picture waits when nothing comes")
            await page.run("document.getElementById('stop').click()")
            check(await page.until("!longtake.running && document.getElementById('go').textContent === 'Generate'"), "stop")
            check(await page.until("document.getElementById('wait').hidden && document.getElementById('play').ariaLabel === 'Play'"), "and waits no longer")
            await shot(page, "stopped")
            saved = await page.run("fetch(document.getElementById('save').href).then((r) => r.arrayBuffer()).then((b) => b.byteLength)")
            check(saved > 10000, "the download: %r bytes" % saved)
            # clear words for what is wrong
            await page.run("document.getElementById('more').open = false")
            check(await page.run(ASK % '{prompt: "x", "f-seed": "-3"}' + "; document.getElementById('more').open && !longtake.starting"), "a field that is out of sight is shown when it is wrong")
            await page.run("document.getElementById('f-seed').value = ''")
            await page.run(ASK % '{prompt: "x", "f-size": "63x63"}')
            check("63" in (await page.until("!document.getElementById('alert').hidden && document.getElementById('alert-text').textContent") or ""), "a wrong size is named")
            check(await page.run("document.getElementById('f-size').getAttribute('aria-invalid')") == "true", "beside its field")
            await shot(page, "error")
            unnamed = await page.run("""[...document.querySelectorAll("button, input, select, textarea, a, canvas, video, svg[role]")].filter((e) =>
                !(e.hidden || e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length) || e.title)).map((e) => e.outerHTML)""")
            check(not unnamed, "everything has a name: %r" % unnamed)
            check(not page.errors, "no errors: %r" % page.errors)
        for kind in ("mse", "jpeg"):
            async with Page(chromium, url + "?player=" + kind, width=390, height=844, dark=True) as page:
                await plays(page, kind)
                await shot(page, kind + "-phone-dark")
                check(await page.run("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than a phone")
                shown = await page.run("longtake.ws.close(), longtake.drawn")
                check(await page.until("longtake.ws && longtake.ws.readyState === 1 && longtake.drawn > %d" % (shown + 24)), kind + ": it comes back by itself")
                if kind == "mse":  # frames that are left out leave a gap in the browser's buffer
                    check(await page.run("(b => b.length === 1 && b.start(0) < 0.1)(document.getElementById('video').buffered)"), "mse: all of it is there")
                    # the last six before a key frame; more, and the server would wait for a picture that waits for it
                    shown = await page.run("""(() => { const p = longtake.player, push = p.push.bind(p); let since = -1, met = false;
                        p.push = (u) => { since = u.key ? 0 : since < 0 ? since : since + 1;
                          if (since >= 26) { met = true; return; } if (met) p.push = push; push(u); }; return longtake.shown; })()""")
                    check(await page.until("longtake.shown > %d" % (shown + 5e6)), "mse: over a gap")
                # the page is loaded anew, while the video is made and when it has ended
                ident = await page.run("window.old = true, location.reload(), longtake.session.session_id")
                check(await page.until("!window.old && longtake.drawn > 8 && longtake.owner && longtake.running && longtake.session.session_id") == ident, kind + ": a page that is loaded anew goes on")
                check(await page.run("document.getElementById('prompt').value") == await page.run("longtake.prompts[0].text"), "with its prompt")
                await page.run("document.getElementById('play').click()")
                await page.until("longtake.stands")
                await page.run("window.old = true, location.reload()")
                check(await page.until("!window.old && longtake.held && longtake.firstPicture && document.getElementById('wait').hidden"), kind + ": so does one that stands, and shows where")
                made = await page.run("document.getElementById('play').click(), longtake.made")
                check(await page.until("longtake.made > %g && longtake.shown > %d" % (made + 2, 1e6 * made)), kind + ": and goes on")
                await page.run("document.getElementById('stop').click()")
                check(await page.until("!longtake.running && document.getElementById('stop').hidden"), kind + ": stop")
                await page.run("window.old = true, location.reload()")
                check(await page.until("!window.old && longtake.over && longtake.firstPicture && !document.getElementById('save').hidden && document.getElementById('go').textContent") == "Generate", kind + ": and is there when it has ended")
                check(not page.errors, "no errors: %r" % page.errors)
        check(server.stop() == 0, "the server ends well")
    finally:
        chromium.close()
        server.stop(signal.SIGKILL)


async def toybox():
    """A prompt, a click, another prompt; nothing else is set."""
    server = Server(model=os.path.join(e2e.HERE, "..", "examples", "toybox"))
    chromium = Browser()
    try:
        server.wait_ready()
        async with Page(chromium, "http://127.0.0.1:%d/" % server.port) as page:
            check(await page.until("longtake.welcome && longtake.welcome.ready"), "toybox: the page connects")
            await page.run(ASK % '{prompt: "a red ball bounces on green grass"}')
            first = await page.until("longtake.firstPicture && longtake.firstPicture - longtake.clicked", 300)
            check(first, "toybox: a first picture")
            watch = float(os.environ.get("LONGTAKE_WATCH", "0"))
            await page.until("longtake.shown > %d" % (1e6 * max(watch, 0.5)), 300)
            print("toybox: first picture %.0f ms after the click; %d stalls in %g s" % (first or -1, await page.run("longtake.stalls"), max(watch, 0.5)))
            before = await page.run(MEAN)
            await shot(page, "toybox")
            await page.run(ASK % '{prompt: "a blue square at night"}')
            check(await page.until("longtake.prompts.length === 2", 300), "toybox: the prompt changes")
            await page.until("longtake.shown > longtake.prompts[1].pts + 1000000", 300)
            after = await page.run(MEAN)
            check(sum(abs(a - b) for a, b in zip(before, after)) > 30, "toybox: and so does the picture: %r, %r" % (before, after))
            await shot(page, "toybox-switched")
            await page.run("document.getElementById('stop').click()")
            check(await page.until("!longtake.running") and not page.errors, "toybox: no errors: %r" % page.errors)
        check(server.stop() == 0, "the server ends well")
    finally:
        chromium.close()
        server.stop(signal.SIGKILL)


if browser.there():
    asyncio.run(main())
    asyncio.run(toybox())
else:
    check(True, "")
    print("skipped: no chromium")
e2e.finish()
