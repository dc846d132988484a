// app.js: the viewer page: connection, controls, telemetry. No build step, nothing from other places.
import { KIND, WIRE, choosePlayer, makePlayer, parseUnit } from "./player.js";
import { Plot } from "./plots.js";

const $ = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const watching = query.get("watch") ? { id: query.get("watch"), key: query.get("key") || "" } : null;

const state = {
  ws: null, welcome: null, session: null, info: null, player: null, kind: null,
  lastSeq: -1, lastEvent: -1, running: false, over: false, owner: false, seeking: null, behind: false,
  tries: 0, closing: false, starting: false, anchor: null, stalls: 0, dropped: 0, firstPicture: 0, clicked: 0, counter: 0, token: sessionStorage.getItem("longtake-token"),
};
window.longtake = state; // for tests and for the curious

const plots = {
  speed: new Plot($("plot-speed"), ["a"], { unit: " fps" }),
  drift: new Plot($("plot-drift"), ["a", "b", "c"], { floor: -0.05, least: 0.05 }),
  motion: new Plot($("plot-motion"), ["b"], { height: 56, least: 0.02 }),
};

// ---- words ----

const clockText = (s) => {
  s = Math.max(0, s);
  const m = Math.floor(s / 60);
  return m + ":" + String(Math.floor(s % 60)).padStart(2, "0");
};
function status(kind, text) {
  $("status").dataset.state = kind;
  $("status").lastElementChild.textContent = text;
}
function alertUser(text, action) {
  $("alert-text").textContent = text;
  $("alert-act").hidden = !action;
  $("alert-act").textContent = action ? action[0] : "";
  $("alert-act").onclick = action ? () => { hideAlert(); action[1](); } : null;
  $("alert").hidden = false;
}
const hideAlert = () => { $("alert").hidden = true; };
function wait(text) {
  $("wait").hidden = !text;
  if (text) { $("wait-text").textContent = text; $("idle").hidden = true; }
}

const WORDS = {
  loading: "The model is still being loaded. Try again in a moment.",
  draining: "The server is shutting down and takes no new videos.",
  session_gone: "This video is no longer on the server. Streams are kept for some minutes after their end.",
  not_owner: "Only the one who started this video can do that.",
  mode_clip: "This video is drawn all at once, so its prompt cannot change. Choose the mode \"block after block\".",
  ended: "The video has ended.",
  superseded: "Another prompt came before this one took effect.",
  unauthorized: "This server wants a token.",
};
const FIELDS = { num_frames: "f-seconds", seconds: "f-seconds", size: "f-size", width: "f-size", height: "f-size", num_inference_steps: "f-steps",
  guidance_scale: "f-guidance", seed: "f-seed", fps: "f-fps", mode: "f-mode", drift: "f-drift", prompt: "prompt", negative_prompt: "f-negative" };

// The session of this tab outlives the page: who loads it anew has it back.
function remember() {
  try {
    if (state.session && state.owner) sessionStorage.setItem("longtake-session", JSON.stringify({ session: state.session, kind: state.kind }));
    else sessionStorage.removeItem("longtake-session");
  } catch { /* storage is off, or full */ }
}
function recall() {
  let kept = null;
  try { kept = JSON.parse(sessionStorage.getItem("longtake-session")); } catch { /* the same */ }
  if (!kept?.session?.resume_token || !WIRE[kept.kind]) return;
  Object.assign(state, { session: kept.session, kind: kept.kind, owner: true, recalled: true });
  setRunning(true);
  wait("Back to the video");
}

// Nothing is shown and nothing comes.
function idle() {
  state.starting = false;
  if (state.running || state.player) return;
  wait(null);
  $("idle").hidden = false;
  $("stage").dataset.state = "idle";
}

// ---- connection ----

function send(message) {
  if (state.ws && state.ws.readyState === 1) state.ws.send(JSON.stringify(message));
}
const eventId = () => "e" + ++state.counter;

function connect() {
  const ws = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/v1/stream", "longtake.v1");
  ws.binaryType = "arraybuffer";
  state.ws = ws;
  ws.onopen = () => {
    const hello = { type: "hello", protocol: "longtake.v1" };
    if (state.token) hello.token = state.token;
    if (state.session && state.owner) {
      hello.wire = WIRE[state.kind];
      hello.resume = { session_id: state.session.session_id, token: state.session.resume_token, last_seq: state.lastSeq, last_event: state.lastEvent };
      if (!state.player) delete hello.resume.last_seq;
    }
    if (!watching) ws.send(JSON.stringify(hello));
    else watch();
  };
  ws.onmessage = (m) => typeof m.data === "string" ? onEvent(JSON.parse(m.data)) : onUnit(parseUnit(m.data));
  ws.onclose = (e) => onClose(e);
}

function watch() {
  state.kind = state.kind || choosePlayer(query.get("player"));
  send({ type: "watch", session_id: watching.id, key: watching.key, wire: WIRE[state.kind] });
}

function onClose(e) {
  if (state.closing) return;
  state.ws = null;
  if (e.code === 4010) { status("off", "opened elsewhere"); return alertUser("This video is being watched in another tab of yours now.", ["Take it back", connect]); }
  if (e.code === 1008 && e.reason === "unauthorized") return askToken();
  if (state.starting) { // the server may never have heard of it
    idle();
    alertUser("The connection was lost before the video began.", ["Try again", () => $("form").requestSubmit()]);
  }
  state.tries++;
  const seconds = Math.min(8, 0.4 * 2 ** Math.min(state.tries, 6));
  status("lost", state.welcome || state.info ? "connection lost, trying again" : "the server does not answer");
  if (state.tries === 3) alertUser(state.running ? "The connection is lost. The video goes on for half a minute without it." : "The server cannot be reached.", ["Try now", connect]);
  clearTimeout(state.retry);
  state.retry = setTimeout(() => { if (!state.ws) connect(); }, seconds * 1000);
}

function askToken() {
  status("off", "token wanted");
  const d = $("ask-token");
  idle();
  d.returnValue = "";
  $("token-title").textContent = state.token ? "The server does not know this token" : "This server wants a token";
  d.onclose = () => {
    if (d.returnValue !== "ok") return alertUser(WORDS.unauthorized, ["Enter it", askToken]);
    state.token = $("token").value.trim();
    sessionStorage.setItem("longtake-token", state.token);
    dispatchEvent(new Event("longtake-token")); // the list of videos needs it too
    connect();
  };
  if (!d.open) d.showModal();
}

// ---- what the server says ----

const handlers = {
  welcome(m) {
    state.welcome = m;
    state.tries = 0;
    if (!$("alert").hidden && $("alert-act").textContent === "Try now") hideAlert();
    status(state.running ? "busy" : "on", state.running ? "live" : m.ready ? "ready" : "loading the model");
    const d = m.model;
    $("model").textContent = d.name;
    $("f-seconds").placeholder = (d.num_frames / d.fps).toFixed(1);
    $("f-size").placeholder = d.width + "x" + d.height;
    $("f-steps").placeholder = d.num_inference_steps;
    $("f-guidance").placeholder = d.guidance_scale;
    $("f-fps").placeholder = d.fps;
    $("f-seconds").max = m.limits.max_seconds;
    if (!m.ready) setTimeout(() => send({ type: "hello", token: state.token || undefined }), 1000);
  },
  accepted(m) {
    state.starting = false;
    state.session = m;
    state.owner = true;
    remember();
    setRunning(true);
    wait("Waiting for the first picture");
    if (m.request.seed) $("f-seed").placeholder = m.request.seed;
  },
  queued(m) {
    wait(m.position === 0 ? `Next in line, about ${clockText(m.eta_ms / 1000)}` : `${m.position} before you, about ${clockText(m.eta_ms / 1000)}`);
    status("busy", "in the queue");
  },
  running() { wait("Reading the prompt"); status("busy", "starting"); },
  waiting() { wait("Waiting for the first picture"); status("busy", "waiting"); },
  progress(m) {
    if (!state.firstPicture) wait(m.phase === "text" ? "Reading the prompt" : `Drawing: step ${m.step} of ${m.steps}`);
  },
  started(m) {
    const ended = m.phase === "ended";
    if (watching) { state.session = m; state.tries = 0; hideAlert(); }
    status(ended ? "on" : "busy", ended ? "recorded" : watching ? "watching a shared video" : "live");
    state.info = m;
    state.over = ended;
    setRunning(!ended);
    plots.speed.rule = m.fps;
    if (!state.player) build();
    if (m.prompts.length) showPrompts(m.prompts);
    if (watching || state.recalled) $("prompt").value = m.prompts[m.prompts.length - 1].text;
    state.recalled = false;
    paused(m.paused);
  },
  applied(m) {
    if (m.what === "prompt") {
      state.prompts.push({ pts: m.pts, text: m.text });
      showPrompts(state.prompts);
      plots.drift.mark(m.pts / 1e6);
      plots.motion.mark(m.pts / 1e6);
    } else if (m.what === "seek" && m.event_id === state.seeking) {
      state.seeking = null;
    } else if (m.what === "pause" || m.what === "resume") paused(m.paused);
  },
  rejected(m) {
    if (!state.owner) return; // somebody else's order
    state.pendingPrompt = null;
    showPrompts(state.prompts);
    alertUser(WORDS[m.code] || "That was not possible: " + (m.message || m.code) + ".");
  },
  dropped(m) {
    state.dropped += m.frames;
    $("n-dropped").textContent = state.dropped;
  },
  stats(m) {
    const t = m.pts / 1e6;
    state.made = Math.max(state.made || 0, t);
    plots.speed.add(t, [Math.min(m.gen_fps, 4 * state.info?.fps || 64)]);
    state.speed = m.gen_fps;
    $("n-fps").textContent = m.gen_fps.toFixed(1);
    $("n-block").textContent = m.block_ms >= 1000 ? (m.block_ms / 1000).toFixed(1) + " s" : Math.round(m.block_ms) + " ms";
    $("n-lead").textContent = (Math.max(0, m.lead_ms) / 1000).toFixed(1) + " s";
    $("n-density").textContent = Math.round(100 * m.attention_density) + " %";
    $("n-cache").textContent = m.cache_bytes >= 1 << 30 ? (m.cache_bytes / 2 ** 30).toFixed(1) + " GB" : Math.round(m.cache_bytes / 2 ** 20) + " MB";
    $("n-frames").textContent = m.frame;
    if (m.drift) {
      $("drift-facts").hidden = false;
      $("n-level").textContent = m.drift.level.toFixed(2) + (m.drift.alarm ? " !" : "");
      $("n-kind").textContent = m.drift.kind === "none" ? "–" : m.drift.kind;
      $("n-action").textContent = m.drift.action === "left" ? "nothing" : m.drift.action;
    }
    if (!m.picture) return;
    const p = [m.picture.luma, m.picture.contrast, m.picture.saturation];
    if (!state.anchor || t <= 1) state.anchor = state.anchor && t > 0.3 ? state.anchor.map((a, i) => (a + p[i]) / 2) : p;
    plots.drift.add(t, p.map((v, i) => v - state.anchor[i]));
    plots.motion.add(t, [m.picture.motion]);
  },
  done(m) {
    state.over = true;
    setRunning(false);
    if (!state.firstPicture && m.reason !== "complete") wait(null);
    status("on", m.reason === "complete" ? "finished" : m.reason === "stopped" ? "stopped" : m.reason === "error" ? "failed" : "ended");
  },
  draining(m) { alertUser(`The server is shutting down in ${Math.max(0, Math.round(m.deadline_s))} s. Download the video if you want to keep it.`); },
  error(m) {
    if (m.code === "unauthorized") return;
    state.starting = false;
    let text = WORDS[m.code] || m.message;
    let action = null;
    if (m.code === "session_gone") {
      const quiet = state.recalled;
      wait(null);
      Object.assign(state, { session: null, owner: false, recalled: false });
      remember();
      setRunning(false);
      status(watching ? "off" : "on", watching ? "gone" : "ready");
      if (quiet) return idle();
      if (watching) action = ["Make another", () => { location.href = "/"; }];
    }
    if (m.code === "queue_full") { text = `All places are taken and the queue is full. There should be room in about ${clockText(m.retry_after_ms / 1000)}.`; }
    if (m.code === "out_of_memory") text = "There is not enough memory for this video: choose a smaller size or a shorter one. " + m.message;
    if (m.code === "generation_failed") text = "The video could not be made: " + m.message;
    if (m.retryable && !state.running) action = ["Try again", () => $("form").requestSubmit()];
    if (m.param && FIELDS[m.param]) {
      const f = $(FIELDS[m.param]);
      f.setAttribute("aria-invalid", "true");
      if (f.id !== "prompt") $("more").open = true;
      f.focus();
    }
    idle();
    alertUser(text, action);
  },
  pong() {},
};

function onEvent(m) {
  if (m.n !== undefined) state.lastEvent = Math.max(state.lastEvent, m.n);
  (handlers[m.type] || (() => {}))(m);
}

function onUnit(u) {
  if (!u) return;
  if (u.kind === KIND.end) { state.player?.finish(); return; }
  if (state.seeking) return; // of the old place, still on its way
  if (u.kind === KIND.init) { state.init = u; state.player?.push(u); return; }
  if (![KIND.video, KIND.fragment, KIND.jpeg].includes(u.kind)) return;
  state.lastSeq = u.seq;
  state.made = Math.max(state.made || 0, (u.pts + u.duration) / 1e6);
  state.player?.push(u);
}

// ---- the player ----

function build() {
  state.player?.close();
  state.stalledNow = false;
  state.player = makePlayer(state.kind, $("canvas"), $("video"), state.info, {
    draw(pts) {
      if (!state.firstPicture) {
        state.firstPicture = performance.now();
        $("idle").hidden = true;
        $("stage").dataset.state = "playing";
      }
      state.shown = pts;
      state.drawn = (state.drawn || 0) + 1;
    },
    state(s) {
      if (s === "stalled") {
        if (state.over) return;
        state.stalls++;
        $("n-stalls").textContent = state.stalls;
        wait(!state.ws ? "The connection is lost" : state.speed && state.speed < state.info.fps ? `The model draws ${state.speed.toFixed(1)} of ${state.info.fps} frames a second` : "The picture waits for the model");
      } else if (s === "playing") wait(null);
      else if (s === "ended") { wait(null); $("badge").hidden = true; setPlay(true); state.finished = true; }
    },
    needKey() { send({ type: "keyframe" }); },
    error(text) {
      const next = { webcodecs: "mse", mse: "jpeg" }[state.kind];
      if (!next) return alertUser(text);
      state.kind = next; // the next way; from the newest key frame
      build();
      if (watching) watch();
      else { state.ws?.close(); }
    },
  });
}

function setPlay(held) {
  state.held = held;
  $("play").setAttribute("aria-label", held ? "Play" : "Pause");
  $("play-shape").setAttribute("d", held ? "M7 4.500v15l13-7.500z" : "M8 5h3v14H8zM14 5h3v14h-3z");
}
function paused(p) {
  state.stands = p;
  setPlay(p);
  state.player?.pause(p);
}
function togglePlay() {
  if (!state.player) return;
  if (state.finished) { state.finished = false; seek(0); setPlay(false); state.player.pause(false); return; }
  const hold = !state.held;
  setPlay(hold);
  state.player.pause(hold);
  // who looks at what was before holds only his own picture, but whoever goes on wants the drawing to go on
  if (state.owner && state.running && (hold ? !state.behind : !state.behind || state.stands)) send({ type: hold ? "pause" : "resume", event_id: eventId() });
}
function seek(seconds, live) {
  if (!state.player) return;
  const stays = state.held && !live && !state.finished; // paused: the picture of that place, and no more
  state.seeking = eventId();
  state.behind = !live;
  state.finished = false;
  state.player.reset();
  if (state.kind === "mse" && state.over) build(); // a stream that ended cannot be appended to
  if (state.kind === "mse" && state.init && state.over) state.player.push(state.init);
  if (stays) state.player.pause(true);
  else if (state.held) {
    setPlay(false);
    state.player.pause(false);
    if (state.owner && state.running) send({ type: "resume", event_id: eventId() }); // the drawing stood, too
  }
  state.shown = seconds * 1e6;
  send(live ? { type: "seek", live: true, event_id: state.seeking } : { type: "seek", pts: Math.round(seconds * 1e6), event_id: state.seeking });
}

function setRunning(on) {
  state.running = on;
  const can = !watching;
  $("go").textContent = on && can ? "Change prompt" : "Generate";
  $("stop").hidden = !(on && can);
  $("form").classList.toggle("running", on);
  $("go").hidden = !!watching || (on && state.session?.request?.mode !== "ar"); // others have one prompt
  $("prompt").readOnly = !!watching;
  $("more").hidden = !!watching;
  for (const e of $("more").querySelectorAll("input,select")) e.disabled = on;
  const s = state.session;
  $("share").hidden = !s;
  $("save").hidden = !s || !state.info; // nothing is there before
  if (s) $("save").href = `/v1/live/${s.session_id}/content?key=${s.key}&download=1`;
  $("play").disabled = $("seek").disabled = $("edge").disabled = !s;
}

function showPrompts(list) {
  state.prompts = list;
  const rows = list.map((p) => {
    const li = document.createElement("li"), b = document.createElement("button"), t = document.createElement("time"), s = document.createElement("span");
    b.type = "button";
    t.textContent = clockText(p.pts / 1e6);
    s.textContent = p.text;
    b.append(t, s);
    b.onclick = () => seek(p.pts / 1e6);
    li.append(b);
    return li;
  });
  if (state.pendingPrompt) {
    const li = document.createElement("li"), b = document.createElement("button"), t = document.createElement("span"), s = document.createElement("span");
    b.type = "button";
    b.disabled = true;
    t.className = "soon";
    t.textContent = "next";
    s.textContent = state.pendingPrompt;
    if (list.length && list[list.length - 1].text === state.pendingPrompt) state.pendingPrompt = null;
    else { b.append(t, s); li.append(b); rows.push(li); }
  }
  $("prompts").replaceChildren(...rows);
}

// ---- controls ----

function reset() {
  state.player?.close();
  Object.assign(state, { player: null, info: null, session: null, owner: false, speed: 0, lastSeq: -1, lastEvent: -1, over: false, behind: false, anchor: null, stalls: 0, dropped: 0,
    firstPicture: 0, made: 0, shown: 0, drawn: 0, prompts: [], pendingPrompt: null, finished: false, init: null, seeking: null, stands: false });
  for (const p of Object.values(plots)) p.clear();
  $("n-stalls").textContent = $("n-dropped").textContent = "0";
  for (const n of ["fps", "block", "lead", "density", "cache", "frames"]) $("n-" + n).textContent = "–";
  $("save").hidden = $("share").hidden = $("drift-facts").hidden = true;
  $("seek").max = $("seek").value = 0;
  $("play").disabled = $("seek").disabled = $("edge").disabled = true;
  $("time").textContent = "0:00 / 0:00";
  $("marks").replaceChildren();
  $("stage").dataset.state = "idle";
  for (const e of document.querySelectorAll("[aria-invalid]")) e.removeAttribute("aria-invalid");
  setPlay(false);
  showPrompts([]);
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  hideAlert();
  const text = $("prompt").value.trim();
  if (!text || watching || state.starting) return;
  if (!state.ws || state.ws.readyState !== 1) return alertUser("The server cannot be reached.", ["Try now", connect]);
  if (state.running) {
    state.pendingPrompt = text;
    showPrompts(state.prompts);
    send({ type: "prompt", text, event_id: eventId() });
    if (state.behind) seek(0, true);
    return;
  }
  reset();
  state.starting = true;
  state.clicked = performance.now();
  state.kind = choosePlayer($("f-player").value || query.get("player"));
  const m = { type: "start", prompt: text, wire: WIRE[state.kind], event_id: eventId(), reliable: $("f-reliable").checked, round_frames: true };
  for (const f of $("form").elements) {
    if (!f.name || !f.value.trim()) continue;
    m[f.name] = f.type === "number" ? Number(f.value) : f.value.trim();
  }
  wait("Starting");
  send(m);
});
// A field that is out of sight cannot be complained about: the browser would refuse without a word.
$("more").addEventListener("invalid", () => { $("more").open = true; }, true);
$("stop").onclick = () => send({ type: "stop", event_id: eventId() });
$("play").onclick = togglePlay;
$("edge").onclick = () => seek(0, true);
$("seek").onchange = () => { state.dragging = false; seek(Number($("seek").value)); };
$("seek").oninput = () => { state.dragging = true; $("time").textContent = clockText(Number($("seek").value)) + " / " + clockText(state.made || 0); };
$("full").onclick = () => { if (document.fullscreenElement) document.exitFullscreen(); else $("stage").requestFullscreen?.(); };
$("alert-close").onclick = hideAlert;
$("help").onclick = () => $("keys").showModal();
$("share").onclick = async () => {
  const link = `${location.origin}/?watch=${state.session.session_id}&key=${state.session.key}`;
  try { await navigator.clipboard.writeText(link); $("share").textContent = "Copied"; } catch { window.prompt("Link to this video", link); }
  setTimeout(() => { $("share").textContent = "Copy link"; }, 1600);
};
const themes = { dark: "light", light: "dark" };
try { const t = localStorage.getItem("longtake-theme"); if (t) document.documentElement.dataset.theme = t; } catch { /* storage is off */ }
$("theme").onclick = () => {
  const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = themes[now];
  try { localStorage.setItem("longtake-theme", themes[now]); } catch { /* storage is off */ }
};
document.addEventListener("keydown", (e) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && e.target.type !== "range" && e.target.type !== "checkbox";
  if (e.target.id === "prompt" && e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); return $("form").requestSubmit(); }
  if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const at = (state.shown || 0) / 1e6;
  const keys = {
    "/": () => $("prompt").focus(), " ": () => { if (!/^(BUTTON|SUMMARY)$/.test(e.target.tagName) && e.target.type !== "checkbox") togglePlay(); else return true; },
    ArrowLeft: () => seek(Math.max(0, at - 2)), ArrowRight: () => (at + 2 >= (state.made || 0) - 0.5 && state.running ? seek(0, true) : seek(Math.min(state.made || 0, at + 2))),
    l: () => seek(0, true), L: () => seek(0, true), f: () => $("full").click(), F: () => $("full").click(), "?": () => $("keys").showModal(),
  };
  if (keys[e.key] && keys[e.key]() !== true) e.preventDefault();
});

// ---- time ----

setInterval(() => {
  if (!state.info) return;
  const shown = (state.shown || 0) / 1e6, made = state.made || 0;
  if (!state.dragging) {
    $("seek").max = Math.max(made, 0.1);
    $("seek").value = shown;
    $("seek").setAttribute("aria-valuetext", clockText(shown) + " of " + clockText(made));
    $("time").textContent = clockText(shown) + " / " + clockText(made);
  }
  const live = state.running && !state.behind;
  $("badge").hidden = !state.firstPicture || (!state.running && !state.behind) || (live && !state.ws);
  $("badge").textContent = live ? "LIVE" : state.running ? "EARLIER" : "RECORDED";
  $("badge").classList.toggle("past", !live);
  $("edge").setAttribute("aria-pressed", String(live));
  $("edge").disabled = !state.running;
  if (state.behind && state.running && made - shown < 1.6 && !state.seeking) state.behind = false;
  $("marks").replaceChildren(...(state.prompts || []).slice(1).map((p) => {
    const i = document.createElement("i");
    i.style.left = (100 * p.pts) / 1e6 / Math.max(made, 0.1) + "%";
    return i;
  }));
  // not before something is seen: the server would take the beginning for what is shown, and wait
  if (state.running && !state.held && state.firstPicture) send({ type: "ack", seq: Math.max(0, state.lastSeq), rendered_pts: Math.max(0, Math.round(state.shown || 0)), decode_queue: state.player ? state.player.queued() : 0 });
}, 250);
setInterval(() => { for (const p of Object.values(plots)) if (p.dirty) p.draw(); }, 500);
addEventListener("pagehide", () => { state.closing = true; });
addEventListener("pageshow", (e) => { if (e.persisted) { state.closing = false; connect(); } }); // kept by the browser, and come back to

showPrompts([]);
if (watching) { setRunning(true); $("prompt").placeholder = "A shared video"; wait("Joining the video"); }
else recall();
connect();
