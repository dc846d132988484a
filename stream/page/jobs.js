// jobs.js: the videos of /v1/videos: what there is, how far it has come, and the file.
const list = document.getElementById("jobs"), card = list.closest("section");
const WORDS = { queued: "waits", in_progress: "", completed: "ready", failed: "failed" };
let timer = 0;
const pictures = new Map(); // of a video's id: an address of its thumbnail

const headers = () => {
  const token = sessionStorage.getItem("longtake-token");
  return token ? { Authorization: "Bearer " + token } : {};
};

async function save(job) {
  const reply = await fetch(`/v1/videos/${job.id}/content`, { headers: headers() });
  if (!reply.ok) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await reply.blob());
  link.download = job.id + ".mp4";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

async function show(image, job) {
  if (!pictures.has(job.id)) {
    const reply = await fetch(`/v1/videos/${job.id}/content?variant=thumbnail`, { headers: headers() }).catch(() => null);
    if (!reply || !reply.ok) return;
    pictures.set(job.id, URL.createObjectURL(await reply.blob()));
  }
  image.src = pictures.get(job.id);
  image.hidden = false;
}

function line(job) {
  const item = document.createElement("li"), button = document.createElement("button"), how = document.createElement("span"), what = document.createElement("span");
  how.className = "soon";
  how.textContent = job.status === "in_progress" ? job.progress + " %" : job.status === "queued" && job.queue_position >= 0 ? "waits, " + (job.queue_position + 1) : WORDS[job.status];
  what.textContent = job.prompt;
  button.type = "button";
  button.dataset.id = job.id;
  button.disabled = job.status !== "completed";
  button.title = job.error ? job.error.message : job.status === "completed" ? "Download MP4" : "";
  if (job.status === "completed") {
    const image = document.createElement("img");
    image.alt = "";
    image.hidden = true;
    what.prepend(image);
    show(image, job);
  }
  button.append(how, what);
  button.onclick = () => save(job);
  item.append(button);
  return item;
}

// Only when something has changed: whoever is on a line with the keyboard stays there.
let shown = "";
function put(jobs) {
  const text = JSON.stringify(jobs.map((j) => [j.id, j.status, j.progress, j.queue_position]));
  if (text === shown) return;
  shown = text;
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.id : "";
  for (const [id, address] of pictures) {
    if (jobs.some((j) => j.id === id)) continue;
    URL.revokeObjectURL(address);
    pictures.delete(id);
  }
  list.replaceChildren(...jobs.map(line));
  if (focused) list.querySelector(`[data-id="${focused}"]`)?.focus();
  card.hidden = !jobs.length;
}

// Asked again only while something is under way and somebody is looking.
let jobs = [];
async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  const reply = await fetch("/v1/videos?limit=20", { headers: headers() }).catch(() => null);
  if (reply && reply.ok) put(jobs = (await reply.json()).data);
  if (jobs.some((j) => j.status === "queued" || j.status === "in_progress")) timer = setTimeout(look, 2000);
}

document.addEventListener("visibilitychange", look);
addEventListener("focus", look);
addEventListener("longtake-token", look);
look();
