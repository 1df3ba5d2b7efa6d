// Draws what claimd sends: entries by key, each with its latest state. Texts of others are put into
// the page as text, never as markup. Only the rows that are seen are in the document.

import { SIGNS, USES, ago, clock, described, haystack, isSick, plural } from "./format.js";

// Sizes in pixels, as in the style: a cell and a narrow cell with the gap behind it, a line of
// cells, the rest of a row, and the columns next to the cells.
const CELL = 27;
const PART = 14;
const LINE = 28;
const REST = 9;
const REST_IF_NARROW = 52;
const NAME = 190;
const INFO = 260;
const NARROW = 700; // a list that is narrower has the names above the cells
const MOST_CELLS = 1024; // of a row; the rest is counted
const MOST_LINES = 200; // of each list next to the nodes

const entries = new Map(); // by key, as they were sent
const nodes = new Map(); // by name: the row, what its devices are searched by, where they stand
let shown = []; // names of the rows that pass the filter
let tops = [0]; // where each of these rows begins, and where the last one ends
let only = "all";
let selected = null; // {row, device, driver}
let full = null; // attributes of the selected device
let stale = { rows: true, summary: true, waiting: true, timeline: true, details: true };
let isScheduled = false;

const byId = (id) => document.getElementById(id);
const [filter, list, room] = ["filter", "list", "room"].map(byId);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

// ---------------------------------------------------------------- what is sent

function take(message) {
  if (message.whole) {
    entries.clear();
    nodes.clear();
    stale = { rows: true, summary: true, waiting: true, timeline: true, details: true, trend: true };
  }
  for (const [key, value] of Object.entries(message.set)) {
    if (value === null) entries.delete(key);
    else entries.set(key, value);

    const [kind] = key.split("/", 1);
    if (kind === "node") {
      takeNode(key.slice(5), value);
    } else if (kind === "pod" || kind === "waiting") {
      stale.waiting = true;
    } else if (kind === "change") {
      stale.timeline = true;
      if (!message.whole && value) announce(value.text);
    } else if (kind === "trend") {
      stale.trend = true;
    } else {
      stale.problems = true;
    }
  }
  if (message.whole) stale.problems = true;
  schedule();
}

function takeNode(name, row) {
  if (row === null) nodes.delete(name);
  else nodes.set(name, { row, words: null });
  stale.rows = stale.summary = true;
  if (selected && selected.row === name) stale.details = true;
}

// The words are put together when somebody looks for some.
function wordsOf(node) {
  node.words ??= node.row.devices.map((device) => haystack(node.row, device));
  return node.words;
}

// ---------------------------------------------------------------- what passes the filter

const KINDS = {
  all: () => true,
  free: (device) => device.use === "free" && !isSick(device),
  taken: (device) => ["taken", "shared", "divided"].includes(device.use),
  sick: (device) => (device.why || []).length > 0,
};

function passes(node, words) {
  if (only === "notes") {
    if (!node.row.note) return null;
  } else if (only !== "all" && !node.row.devices.some(KINDS[only])) {
    return null;
  }
  if (!words.length) return new Set();

  const matching = new Set();
  wordsOf(node).forEach((text, index) => {
    if (words.every((word) => text.includes(word))) matching.add(index);
  });
  const own = `${node.row.name} ${node.row.note || ""}`.toLowerCase();
  if (!matching.size && !words.every((word) => own.includes(word))) return null;
  return matching;
}

function searched() {
  return filter.value.toLowerCase().split(/\s+/).filter(Boolean);
}

function choose() {
  const words = searched();
  shown = [];
  for (const [name, node] of nodes) {
    node.matching = passes(node, words);
    if (node.matching) shown.push(name);
  }
  shown.sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  byId("shown").textContent = shown.length === nodes.size
    ? `(${nodes.size.toLocaleString("en")})`
    : `(${shown.length.toLocaleString("en")} of ${nodes.size.toLocaleString("en")})`;
}

// ---------------------------------------------------------------- rows

// Cells wrap into lines, so rows have different heights. Only rows that are seen are drawn.
function layOut() {
  const width = list.clientWidth - 26;
  const isNarrow = list.clientWidth < NARROW;
  let longest = CELL;
  for (const name of shown) longest = Math.max(longest, lengthOf(nodes.get(name).row));
  const cells = isNarrow ? width : Math.min(longest, width - NAME - INFO);

  tops = [0];
  for (const name of shown) {
    const lines = linesOf(nodes.get(name).row, cells);
    tops.push(tops.at(-1) + lines * LINE + (isNarrow ? REST_IF_NARROW : REST));
  }
  list.classList.toggle("narrow", isNarrow);
  room.style.height = `${tops.at(-1)}px`;
  room.style.setProperty("--cells", `${cells}px`);
}

const widthOf = (device) => (device.parent ? PART : CELL);

function lengthOf(row) {
  return row.devices.slice(0, MOST_CELLS).reduce((sum, device) => sum + widthOf(device), 0);
}

function linesOf(row, width) {
  let lines = 1;
  let used = 0;
  for (const device of row.devices.slice(0, MOST_CELLS)) {
    if (used && used + widthOf(device) > width) {
      lines += 1;
      used = 0;
    }
    used += widthOf(device);
  }
  return lines;
}

// The index of the row that is at this height of the list.
function rowAt(height) {
  let low = 0;
  let high = shown.length;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (tops[middle] <= height) low = middle;
    else high = middle;
  }
  return low;
}

function drawRows() {
  const first = Math.max(0, rowAt(list.scrollTop) - 4);
  const last = Math.min(shown.length, rowAt(list.scrollTop + list.clientHeight) + 5);
  const rows = [];
  for (let index = first; index < last; index += 1) rows.push(drawRow(shown[index], index));
  if (!shown.length) {
    const why = nodes.size ? "No node passes the filter." : "No node is known yet.";
    rows.push(make("p", { className: "empty" }, why));
  }
  // The focus stays, although every cell is made again.
  const hadFocus = list.contains(document.activeElement);
  room.replaceChildren(...rows);
  if (hadFocus) focusSelected();
}

function drawRow(name, index) {
  const { row, matching } = nodes.get(name);
  const cells = row.devices.slice(0, MOST_CELLS).map((device, number) => {
    const isOther = (matching.size && !matching.has(number)) || !(KINDS[only] || KINDS.all)(device);
    return drawCell(row, device, isOther);
  });
  const models = [...new Set(row.devices.filter((one) => !one.parent).map((one) => one.model))];
  const rest = row.devices.length - MOST_CELLS;
  const pods = podsOf(row).join(", ");
  const element = make(
    "div",
    { className: "row", role: "row", "aria-rowindex": index + 1 },
    make("span", { className: "name", role: "rowheader", title: name }, name),
    make("span", { className: "cells" }, ...cells),
    rest > 0 ? make("span", { className: "more" }, `and ${rest} more`) : null,
    row.note ? make("span", { className: "note", title: row.note }, `⚠ ${row.note}`) : null,
    pods ? make("span", { className: "pods", title: pods }, pods) : null,
    make("span", { className: "model-name" }, models.join(", ") || "no devices"),
  );
  element.style.top = `${tops[index]}px`;
  element.style.height = `${tops[index + 1] - tops[index]}px`;
  return element;
}

// Those that work on a node; who only watches it is told in the details.
function podsOf(row) {
  const holders = row.devices.flatMap((device) => device.by || []).filter((one) => !one.admin);
  return [...new Set(holders.flatMap((holder) => holder.pods))];
}

function drawCell(row, device, isOther) {
  const classes = ["cell", device.use];
  if (device.parent) classes.push("part");
  if (isSick(device)) classes.push("sick");
  if (isOther) classes.push("other");
  const text = described(row, device);
  const isSelected = isTheSelected(row, device);
  const cell = make(
    "button",
    {
      className: classes.join(" "), title: text, "aria-label": text, role: "gridcell",
      "aria-selected": isSelected, tabIndex: isSelected ? 0 : -1,
    },
    signOf(device),
  );
  cell.onclick = () => select(row.name, device);
  return cell;
}

function signOf(device) {
  if (!device.parent) return SIGNS[device.use] || "";
  // A narrow cell has room for one sign; the style adds that of a sick device.
  return device.use === "taken" && !isSick(device) ? "▪" : "";
}

function isTheSelected(row, device) {
  return selected !== null && selected.row === row.name && selected.device === device.name
    && selected.driver === device.driver;
}

// ---------------------------------------------------------------- in all

function drawSummary() {
  const models = new Map();
  for (const { row } of nodes.values()) {
    for (const device of row.devices) {
      if (device.parent) continue;
      const name = device.model;
      const sum = models.get(name) || { all: 0, free: 0, taken: 0, sick: 0 };
      models.set(name, sum);
      sum.all += 1;
      if (isSick(device)) sum.sick += 1;
      else if (device.use === "free") sum.free += 1;
      else sum.taken += 1;
    }
  }
  const cards = [...models].sort((one, other) => other[1].all - one[1].all).map(drawModel);
  if (!cards.length) cards.push(make("p", { className: "soft" }, "No driver has published a device."));
  byId("summary").replaceChildren(...cards);
}

function drawModel([name, sum]) {
  const bar = make("span", { className: "bar", "aria-hidden": "true" });
  for (const kind of ["taken", "sick"]) {
    const part = make("i", { className: kind });
    part.style.width = `${(100 * sum[kind]) / sum.all}%`;
    bar.append(part);
  }
  const sick = sum.sick ? `, ${sum.sick} sick` : "";
  const card = make(
    "button",
    { className: "model", title: `show ${name} alone` },
    make("b", {}, name),
    bar,
    make("span", { className: "free" }, `${sum.free.toLocaleString("en")} free`),
    make("span", {}, ` of ${sum.all.toLocaleString("en")}${sick}`),
  );
  card.onclick = () => search(filter.value.trim() === name ? "" : name);
  return card;
}

// ---------------------------------------------------------------- beside

function drawWaiting() {
  const pods = [...entries].filter(([key]) => key.startsWith("pod/")).map(([, pod]) => pod);
  pods.sort((one, other) => (one.since < other.since ? -1 : 1));
  const all = entries.get("waiting") || 0;
  const words = searched();
  const seen = pods.filter((pod) => {
    const text = `${pod.pod}\n${pod.line || ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  // Pods with the same answer stand together, as those of one Deployment do.
  const groups = new Map();
  for (const pod of seen) {
    const key = pod.line || pod.pod;
    groups.set(key, [...(groups.get(key) || []), pod]);
  }
  // Who looks for something that no pod has still sees all that wait.
  const chosen = seen.length ? [...groups.values()] : pods.map((pod) => [pod]);
  byId("waiting").replaceChildren(
    make("h2", {}, all ? `${plural(all, "pod")} wait${all === 1 ? "s" : ""}` : "No pod waits"),
    make("ul", {}, ...chosen.slice(0, MOST_LINES).map(drawWait)),
  );
}

function drawWait(pods) {
  const [pod] = pods;
  const names = pods.slice(0, 3).map((one) => one.pod).join(", ");
  const more = pods.length > 3 ? ` and ${pods.length - 3} more` : "";
  const why = pod.line || pod.scheduler || "claimd is looking for the reason …";
  const name = make("button", { title: "filter by this pod" }, make("b", {}, names + more));
  name.onclick = () => search(pod.pod);
  const since = ago(Date.parse(pod.since), Date.now());
  return make(
    "li",
    {},
    name,
    since ? make("time", { dateTime: pod.since, title: pod.since }, ` for ${since}`) : null,
    ...(pod.reasons ? reasonsOf(pod) : [make("div", {}, why)]),
    ...(pod.help || []).slice(0, 2).map((text) => make("span", { className: "help" }, `→ ${text}`)),
    pod.nearest ? make("span", { className: "help" }, `nearest: ${pod.nearest}`) : null,
  );
}

// What stands in the way, each group of nodes in a line of its own.
function reasonsOf(pod) {
  const reasons = pod.reasons.map((text) => make("li", {}, text));
  return [make("div", {}, `${pod.count}:`), make("ul", { className: "reasons" }, ...reasons)];
}

function drawTimeline() {
  const changes = [];
  for (const [key, change] of entries) {
    if (key.startsWith("change/")) changes.push({ ...change, number: Number(key.slice(7)) });
  }
  changes.sort((one, other) => other.time - one.time || other.number - one.number);
  const words = searched();
  const seen = changes.filter((change) => {
    const text = `${change.text} ${change.node}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const lines = seen.slice(0, MOST_LINES).map((change) => {
    const text = make("button", { className: change.kind, title: "filter by this" }, change.text);
    text.onclick = () => search(change.device || change.subject || change.node);
    const time = make("time", { title: new Date(change.time * 1000).toString() }, clock(change.time * 1000));
    return make("li", {}, time, text);
  });
  const head = seen.length ? "The last hour" : "Nothing has changed in the last hour";
  byId("timeline").replaceChildren(make("h2", {}, head), make("ul", {}, ...lines));
}

// ---------------------------------------------------------------- the last hours

const SVG = "http://www.w3.org/2000/svg";
const STATES = ["held", "sick", "free"]; // from the bottom to the top

function drawTrend() {
  const { samples, source } = entries.get("trend") || { samples: [], source: "" };
  const pane = byId("trend");
  const last = samples.at(-1);
  pane.hidden = samples.length < 2 || !(last[1] + last[2] + last[3]);
  if (pane.hidden) return;

  const [from, to] = [samples[0][0], last[0]];
  const most = Math.max(...samples.map(([, free, held, sick]) => free + held + sick));
  const across = (time) => (100 * (time - from)) / Math.max(1, to - from);
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 100 40");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  const bottom = samples.map(() => 0);
  for (const state of STATES) {
    const lower = samples.map(([time], index) => `${across(time)},${40 - (40 * bottom[index]) / most}`);
    samples.forEach(([, free, held, sick], index) => { bottom[index] += { free, held, sick }[state]; });
    const upper = samples.map(([time], index) => `${across(time)},${40 - (40 * bottom[index]) / most}`);
    const area = document.createElementNS(SVG, "polygon");
    area.setAttribute("points", [...lower, ...upper.reverse()].join(" "));
    area.setAttribute("class", state);
    drawing.append(area);
  }
  const least = Math.min(...samples.map(([, free]) => free));
  const words = `${last[1]} free, ${last[2]} held, ${last[3]} sick; at least ${least} free`
    + ` in the last ${ago(from * 1000, to * 1000)}${source ? `, by Prometheus at ${source}` : ""}`;
  pane.replaceChildren(make("h2", {}, "GPUs over time"), drawing, make("p", { className: "soft" }, words));
}

// ---------------------------------------------------------------- details

async function select(row, device) {
  selected = device && { row, device: device.name, driver: device.driver };
  full = null;
  stale.details = stale.view = true;
  schedule();
  if (!selected) return;

  const asked = selected;
  const query = new URLSearchParams(asked);
  const answer = await ask(`/api/device?${query}`).catch(() => null);
  if (asked === selected && answer && answer.ok) {
    full = await answer.json();
    stale.details = true;
    schedule();
  }
}

function selectedDevice() {
  const node = selected && nodes.get(selected.row);
  const device = node && node.row.devices.find((one) => isTheSelected(node.row, one));
  return device ? { row: node.row, device } : null;
}

function drawDetails() {
  const pane = byId("details");
  const found = selectedDevice();
  pane.hidden = !selected;
  if (!selected) return pane.replaceChildren();
  const close = make("button", { className: "close", "aria-label": "Close the details" }, "Esc");
  close.onclick = () => select(null, null);
  const head = make("header", {}, make("h3", {}, selected.device), close);
  if (!found) return pane.replaceChildren(head, make("p", { className: "why" }, "It is not published any more."));

  const { row, device } = found;
  const facts = make("dl");
  const add = (name, value, className = "") => {
    if (value) facts.append(make("dt", {}, name), make("dd", { className }, value));
  };
  add("node", row.name);
  add("model", [device.model, device.size].filter(Boolean).join(", "));
  add("state", USES[device.use] + (isSick(device) ? ", kept from new pods by a taint" : ""));
  if (device.parent) add("part of", device.parent);
  const parts = row.devices.filter((one) => one.parent === device.name);
  if (parts.length) add("parts", parts.map((one) => `${one.name} (${USES[one.use]})`).join(", "));
  for (const taint of device.why || []) {
    const since = ago(Date.parse(taint.since), Date.now());
    add("taint", `${taint.text}: ${taint.effect}${since ? `, for ${since}` : ""}`, "why");
  }
  for (const holder of device.by || []) {
    const since = ago(Date.parse(holder.since), Date.now());
    const pods = holder.pods.length ? `pod ${holder.pods.join(", ")}` : "no pod";
    const extras = [holder.amount, holder.admin ? "with administrative access" : "",
      holder.share ? `share ${holder.share}` : "", since ? `for ${since}` : ""];
    add(holder.admin ? "watched by" : "held by",
      [`${pods}, claim ${holder.claim}`, ...extras].filter(Boolean).join(", "));
    if (holder.unready) add("not ready", holder.unready, "why");
  }
  add("driver", device.driver);
  if (device.pool) add("pool", device.pool);

  const table = make("table");
  for (const [name, value] of Object.entries(full ? { ...full.capacity, ...full.attributes } : {})) {
    table.append(make("tr", {}, make("td", {}, name), make("td", {}, value)));
  }
  return pane.replaceChildren(head, facts, table);
}

// ---------------------------------------------------------------- drawing, once a frame

function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  // Frames stand still in a window that nobody sees; what it keeps is drawn anyway, seldom.
  if (document.hidden) setTimeout(draw, 500);
  else requestAnimationFrame(draw);
}

function draw() {
  isScheduled = false;
  const now = stale;
  stale = {};
  if (now.rows) choose();
  if (now.rows || now.size) layOut();
  if (now.rows || now.view || now.size || now.details) drawRows();
  if (now.trend) drawTrend();
  if (now.summary) drawSummary();
  if (now.waiting) drawWaiting();
  if (now.timeline) drawTimeline();
  if (now.details) drawDetails();
  if (now.problems) drawProblems();
}

function drawProblems() {
  const unseen = entries.get("unseen");
  const lines = [...(entries.get("problems") || [])];
  if (unseen) lines.unshift(`You may not see ${unseen.join(", ")}: what follows from them is missing here.`);
  byId("problem").hidden = !lines.length;
  byId("problem").textContent = lines.slice(0, 5).join("\n");
}

function search(text) {
  filter.value = text;
  refilter();
}

function refilter() {
  Object.assign(stale, { rows: true, waiting: true, timeline: true });
  list.scrollTop = 0;
  schedule();
}

// ---------------------------------------------------------------- keys

function move(across, down) {
  if (!shown.length) return;
  const found = selectedDevice();
  let at = found ? shown.indexOf(selected.row) : -1;
  let column = found ? found.row.devices.findIndex((one) => isTheSelected(found.row, one)) : 0;
  if (at < 0) at = rowAt(list.scrollTop);
  else if (down) at = nextWithDevices(at, down);
  else column += across;

  const { devices } = nodes.get(shown[at]).row;
  if (!devices.length) at = nextWithDevices(at, 1);
  const row = nodes.get(shown[at]).row;
  if (!row.devices.length) return;
  column = Math.min(Math.max(column, 0), Math.min(row.devices.length, MOST_CELLS) - 1);
  if (tops[at] < list.scrollTop) list.scrollTop = tops[at];
  if (tops[at + 1] > list.scrollTop + list.clientHeight) list.scrollTop = tops[at + 1] - list.clientHeight;
  select(row.name, row.devices[column]);
}

function nextWithDevices(at, step) {
  for (let next = at + step; next >= 0 && next < shown.length; next += step) {
    if (nodes.get(shown[next]).row.devices.length) return next;
  }
  return at;
}

function focusSelected() {
  const cell = room.querySelector('[aria-selected="true"]') || list;
  cell.focus({ preventScroll: true });
}

const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target === filter) {
    if (event.key === "Escape") {
      search("");
      filter.blur();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      list.focus();
      move(0, 0);
    } else {
      return;
    }
  } else if (event.key === "/") {
    filter.focus();
    filter.select();
  } else if (event.key === "?") {
    byId("keys").showModal();
  } else if (event.key === "Escape") {
    select(null, null);
  } else if (ARROWS[event.key]) {
    if (!list.contains(document.activeElement)) list.focus();
    move(...ARROWS[event.key]);
  } else if (Number(event.key) >= 1 && Number(event.key) <= 5) {
    show(["all", "free", "taken", "sick", "notes"][Number(event.key) - 1]);
  } else {
    return;
  }
  event.preventDefault();
});

function show(kind) {
  only = kind;
  for (const button of byId("kinds").children) {
    button.setAttribute("aria-pressed", button.value === kind);
  }
  refilter();
}

// ---------------------------------------------------------------- to claimd and back

let token = location.hash.slice(1);
if (token) {
  // Out of the address, so that nobody reads it there; a reload still knows it.
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
} else {
  token = sessionStorage.getItem("token") || "";
}

function ask(path, signal) {
  return fetch(path, { headers: { Authorization: `Bearer ${token}` }, signal });
}

// For those who cannot see the page: the newest change, at most one each second.
let news = "";
function announce(text) {
  if (!news) setTimeout(() => { byId("news").textContent = news; news = ""; }, 1000);
  news = text;
}

function tell(text, isAway) {
  byId("state").textContent = text;
  byId("state").classList.toggle("away", Boolean(isAway));
}

let board = "";
let version = 0;

async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      const answer = await ask(`/api/watch?board=${board}&since=${version}`);
      if (answer.status === 401) {
        tell("not let in", true);
        byId("problem").hidden = false;
        byId("problem").textContent = "Open the address that `claimd view` printed: what is behind its # lets you in.";
        return;
      }
      if (!answer.ok) throw new Error(await answer.text());
      tell("live");
      pause = 250;
      await readLines(answer.body);
    } catch (error) {
      console.info("claimd is away:", error.message);
    }
    tell("claimd is away; trying again", true);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function readLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = value.split("\n");
    // A first picture comes in many pieces: they are joined once.
    pieces.push(lines[0]);
    for (const more of lines.slice(1)) {
      const line = pieces.join("");
      pieces = [more];
      const message = JSON.parse(line);
      ({ board, version } = message);
      take(message);
    }
  }
}

// ---------------------------------------------------------------- once

for (const [kind, word] of [["all", "All"], ["free", "Free"], ["taken", "Taken"], ["sick", "Sick"], ["notes", "Notes"]]) {
  const button = make("button", { value: kind, type: "button", "aria-pressed": kind === "all" }, word);
  button.onclick = () => show(kind);
  byId("kinds").append(button);
}
for (const [use, sign] of Object.entries(SIGNS)) {
  byId("legend").append(make("span", {}, make("span", { className: `cell ${use}` }, sign), USES[use]));
}
byId("legend").append(make("span", {}, make("span", { className: "cell free sick" }), "sick"));
const help = make("button", {}, "keys: ?");
help.onclick = () => byId("keys").showModal();
byId("legend").append(help);

filter.addEventListener("input", refilter);
list.addEventListener("scroll", () => { stale.view = true; schedule(); }, { passive: true });
addEventListener("resize", () => { stale.size = true; schedule(); });
setInterval(() => { Object.assign(stale, { waiting: true, details: true }); schedule(); }, 30000);
tell("connecting …");
follow();
