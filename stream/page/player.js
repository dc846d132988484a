// player.js: units of the stream become pictures at their time. Three ways: WebCodecs, Media Source Extensions, JPEG.

export const KIND = { config: 1, video: 2, init: 3, fragment: 4, jpeg: 5, preview: 6, end: 7 };

// The 32 bytes before every media unit, little-endian.
export function parseUnit(buffer) {
  if (buffer.byteLength < 32) return null;
  const v = new DataView(buffer);
  if (v.getUint8(0) !== 0x56 || v.getUint8(1) !== 0x53 || v.getUint8(2) !== 1) return null;
  const flags = v.getUint16(4, true);
  return {
    kind: v.getUint8(3), key: !!(flags & 1), discontinuity: !!(flags & 2), prompt: !!(flags & 8),
    seq: v.getUint32(8, true), block: v.getUint32(12, true), pts: Number(v.getBigInt64(16, true)),
    duration: v.getUint32(24, true), data: new Uint8Array(buffer, 32, v.getUint32(28, true)),
  };
}

export function choosePlayer(wish) {
  const can = {
    webcodecs: "VideoDecoder" in window && window.isSecureContext,
    mse: "MediaSource" in window || "ManagedMediaSource" in window,
    jpeg: true,
  };
  if (wish && can[wish]) return wish;
  return can.webcodecs ? "webcodecs" : can.mse ? "mse" : "jpeg";
}
export const WIRE = { webcodecs: "annexb", mse: "fmp4", jpeg: "jpeg" };

// Pictures wait decoded or encoded until the clock reaches them. When nothing is left the clock stands ("stall") until there is
// some start buffer again.
class ClockPlayer {
  constructor(canvas, info, on) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.info = info;
    this.on = on;
    canvas.width = info.width;
    canvas.height = info.height;
    this.start = 0.25;
    this.dead = false;
    this.clear();
    this.loop = this.loop.bind(this);
    this.raf = requestAnimationFrame(this.loop);
    // a tab in the background gets no animation frames, but others may be watching: the clock goes on
    this.timer = setInterval(() => this.unseen(), 250);
  }
  unseen() { if (document.hidden) this.loop(performance.now()); }
  clear() {
    for (const p of this.ready || []) p.picture.close();
    this.units = [];
    this.ready = [];
    this.decoding = 0;
    this.clock = null;
    this.position = this.position || 0;
    this.ended = this.over = false;
    this.still = true; // nothing of this place has been shown
    this.newest = -1;
  }
  get paused() { return this.held; }
  pause(hold) {
    this.held = hold;
    if (hold) this.clock = null;
  }
  push(u) {
    if (u.discontinuity && !this.first) this.clock = null;
    this.first = false;
    this.newest = u.pts + u.duration;
    this.units.push(u);
    this.feed();
  }
  finish() { this.ended = true; this.feed(); }
  reset() { this.clear(); }
  buffered() {
    const from = this.clock === null ? (this.ready[0] || this.units[0] || { pts: this.newest }).pts : this.position;
    return Math.max(0, (this.newest - from) / 1e6);
  }
  queued() { return this.units.length + this.ready.length + this.decoding; }
  accept(pts, picture) {
    this.decoding = Math.max(0, this.decoding - 1);
    this.ready.push({ pts, picture });
    this.feed();
    this.unseen();
  }
  loop(now) {
    if (this.dead) return;
    cancelAnimationFrame(this.raf);
    this.raf = requestAnimationFrame(this.loop);
    if (this.held) {
      if (!this.still || !this.ready.length) return;
      this.still = false; // who joins a video that stands sees where it stands
      this.context.drawImage(this.ready[0].picture, 0, 0, this.canvas.width, this.canvas.height);
      this.on.state("playing");
      this.on.draw(this.ready[0].pts);
      return;
    }
    if (this.clock === null) {
      if (this.ended && !this.queued()) this.end(); // it stood when the end came
      if (!this.ready.length || (this.buffered() < this.start && !this.ended)) return;
      this.clock = now - this.ready[0].pts / 1000;
      this.on.state("playing");
    }
    const media = (now - this.clock) * 1000;
    let show = null;
    while (this.ready.length && this.ready[0].pts <= media) {
      if (show) show.picture.close();
      show = this.ready.shift();
    }
    if (show) {
      this.still = false;
      this.context.drawImage(show.picture, 0, 0, this.canvas.width, this.canvas.height);
      show.picture.close();
      this.position = show.pts;
      this.on.draw(show.pts);
      this.feed();
    } else if (!this.ready.length && media > this.newest + 20000) {
      if (this.ended && !this.units.length) {
        this.end();
      } else {
        this.clock = null;
        this.start = Math.min(1, 2 * this.start); // a model that cannot keep up: fewer and longer waits; the server draws 1.5 s ahead
        this.on.state("stalled");
      }
    }
  }
  end() {
    if (!this.over) { this.over = true; this.on.state("ended"); }
  }
  close() {
    this.dead = true;
    cancelAnimationFrame(this.raf);
    clearInterval(this.timer);
    this.clear();
  }
}

class CodecPlayer extends ClockPlayer {
  constructor(canvas, info, on) {
    super(canvas, info, on);
    this.software = false;
    this.open();
  }
  open() {
    this.wantKey = true;
    this.decoder = new VideoDecoder({
      output: (frame) => { if (this.dead) frame.close(); else this.accept(frame.timestamp, frame); },
      error: (e) => {
        if (this.dead) return;
        if (!this.software) { // some hardware decoders refuse or hold frames
          this.software = true;
          this.decoding = 0;
          this.open();
          this.on.needKey();
        } else this.on.error("The browser cannot decode this stream: " + e.message);
      },
    });
    this.decoder.configure({
      codec: this.info.codec, codedWidth: this.info.width, codedHeight: this.info.height, optimizeForLatency: true,
      ...(this.software ? { hardwareAcceleration: "prefer-software" } : {}),
    });
  }
  feed() {
    while (this.units.length && this.ready.length + this.decoding < 10 && this.decoder.state === "configured") {
      const u = this.units.shift();
      if (this.wantKey && !u.key) continue;
      this.wantKey = false;
      this.decoding++;
      this.decoder.decode(new EncodedVideoChunk({ type: u.key ? "key" : "delta", timestamp: u.pts, duration: u.duration, data: u.data }));
    }
  }
  push(u) {
    if (u.discontinuity) this.units = u.key ? this.units : [];
    super.push(u);
  }
  reset() {
    super.reset();
    if (this.decoder.state !== "closed") this.decoder.close();
    this.open();
  }
  close() {
    if (this.decoder.state !== "closed") this.decoder.close();
    super.close();
  }
}

class JpegPlayer extends ClockPlayer {
  feed() {
    while (this.units.length && this.ready.length + this.decoding < 10) {
      const u = this.units.shift();
      const turn = this.turn;
      this.decoding++;
      this.chain = (this.chain || Promise.resolve()).then(() => createImageBitmap(new Blob([u.data], { type: "image/jpeg" })))
        .then((p) => { if (this.dead || turn !== this.turn) p.close(); else this.accept(u.pts, p); }, () => this.decoding--);
    }
  }
  reset() { this.turn = (this.turn || 0) + 1; super.reset(); }
}

class MsePlayer {
  constructor(video, info, on) {
    const Source = window.MediaSource || window.ManagedMediaSource;
    this.video = video;
    this.info = info;
    this.on = on;
    this.queue = [];
    this.position = 0;
    this.newest = 0;
    this.source = new Source();
    video.disableRemotePlayback = true;
    this.url = URL.createObjectURL(this.source);
    video.src = this.url;
    this.source.addEventListener("sourceopen", () => {
      if (this.buffer || this.dead) return;
      try {
        this.buffer = this.source.addSourceBuffer(`video/mp4; codecs="${info.codec}"`);
      } catch (e) { on.error("The browser cannot play this stream: " + e.message); return; }
      this.buffer.addEventListener("updateend", () => this.feed());
      this.feed();
    });
    video.onplaying = () => on.state("playing");
    video.onwaiting = () => { if (this.begun && !this.ended) on.state("stalled"); };
    video.onended = () => on.state("ended");
    video.onerror = () => { if (!this.dead) on.error("The browser cannot play this stream."); };
    this.timer = setInterval(() => this.look(), 60);
  }
  get paused() { return this.held; }
  pause(hold) {
    this.held = hold;
    if (hold) this.video.pause(); else if (this.begun) this.video.play().catch(() => {});
  }
  push(u) {
    if (u.kind === KIND.init) { // after a second one the browser would leave out what comes before the next key frame
      if (this.told) return;
      this.told = true;
    }
    this.newest = u.kind === KIND.fragment ? u.pts + u.duration : this.newest;
    if (u.kind === KIND.fragment && this.target === undefined) this.target = u.pts / 1e6;
    this.queue.push(u.data);
    this.feed();
  }
  finish() { this.ended = true; this.feed(); }
  // Frames that follow are of another place; their times say which.
  reset() { this.queue = []; this.target = undefined; this.ended = false; this.begun = false; this.video.pause(); }
  buffered() {
    const b = this.video.buffered;
    return b.length ? Math.max(0, b.end(b.length - 1) - this.video.currentTime) : 0;
  }
  queued() { return this.queue.length; }
  feed() {
    const b = this.buffer;
    if (!b || b.updating || this.dead || this.source.readyState === "closed") return;
    const v = this.video;
    if (b.buffered.length && v.currentTime - b.buffered.start(0) > 90) { // else the quota is reached
      b.remove(0, v.currentTime - 60);
      return;
    }
    if (this.queue.length) {
      let n = 0;
      for (const q of this.queue) n += q.length;
      const all = new Uint8Array(n);
      n = 0;
      for (const q of this.queue) { all.set(q, n); n += q.length; }
      this.queue = [];
      try { b.appendBuffer(all); } catch (e) { this.on.error("The browser's buffer is full: " + e.message); }
    } else if (this.ended && this.source.readyState === "open") this.source.endOfStream();
  }
  look() {
    const v = this.video, b = v.buffered;
    if (!this.begun && this.target !== undefined) {
      for (let i = 0; i < b.length; i++)
        if (b.start(i) <= this.target + 0.01 && (b.end(i) > this.target + 0.25 || this.ended || this.held)) {
          if (Math.abs(v.currentTime - this.target) > 0.01) v.currentTime = Math.max(this.target, b.start(i));
          this.begun = true;
          if (!this.held) v.play().catch(() => {});
          else this.on.state("playing"), this.on.draw(Math.round(this.target * 1e6)); // as above: it stands, and is seen
        }
    }
    // frames were left out: nothing but a jump gets the picture over the gap
    for (let i = 0; i + 1 < b.length && this.begun; i++)
      if (v.currentTime >= b.end(i) - 0.1 && v.currentTime < b.start(i + 1)) v.currentTime = b.start(i + 1);
    const now = performance.now(), at = Math.round(v.currentTime * 1e6);
    if (document.hidden && v.paused && this.begun && !this.held) { // Chromium stops silent videos in the background
      this.position = Math.min(this.newest, this.position + (now - this.looked) * 1000);
      this.on.draw(Math.round(this.position));
      this.away = true;
    } else if (this.away) {
      this.away = false;
      v.currentTime = this.position / 1e6;
      v.play().catch(() => {});
    } else if (this.begun && at !== this.position) {
      this.position = at;
      this.on.draw(at);
    }
    this.looked = now;
  }
  close() {
    this.dead = true;
    clearInterval(this.timer);
    this.video.pause();
    this.video.removeAttribute("src");
    this.video.load();
    URL.revokeObjectURL(this.url);
  }
}

export function makePlayer(kind, canvas, video, info, on) {
  canvas.hidden = kind === "mse";
  video.hidden = kind !== "mse";
  return kind === "mse" ? new MsePlayer(video, info, on) : kind === "jpeg" ? new JpegPlayer(canvas, info, on) : new CodecPlayer(canvas, info, on);
}
