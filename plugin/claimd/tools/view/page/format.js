// Words and signs. Nothing here touches the page.

export const SIGNS = { free: "", taken: "■", shared: "◪", divided: "▦", blocked: "–" };
export const USES = {
  free: "free", taken: "taken", shared: "shared", divided: "divided into parts",
  blocked: "blocked by its whole or its parts",
};

// "3 m", "2 h", "5 d": how long ago something was; nothing for what is no time.
export function ago(moment, now) {
  if (!Number.isFinite(moment) || moment <= 0) return "";
  const seconds = Math.max(0, (now - moment) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function clock(moment) {
  return new Date(moment).toTimeString().slice(0, 8);
}

export function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

// Everything of a device that somebody may look for, in lower case.
export function haystack(row, device) {
  const words = [row.name, row.note, device.name, device.model, device.memory, device.size, device.id,
    device.driver, device.pool, device.use, device.parent];
  for (const holder of device.by || []) words.push(holder.claim, ...holder.pods);
  for (const taint of device.why || []) words.push(taint.text);
  return words.filter(Boolean).join("\n").toLowerCase();
}

// One line with all facts of a cell, for its title and for screen readers.
export function described(row, device) {
  const parts = [`${device.name} on ${row.name}: ${device.model}`];
  if (device.size) parts.push(device.size);
  parts.push(USES[device.use] || device.use);
  for (const holder of device.by || []) {
    const amount = holder.amount ? ` (${holder.amount})` : "";
    const who = holder.pods.length ? holder.pods.join(", ") : "no pod";
    parts.push(`${holder.admin ? "watched by" : "by"} ${who}, claim ${holder.claim}${amount}`);
    if (holder.unready) parts.push(holder.unready);
  }
  for (const taint of device.why || []) parts.push(taint.text);
  return parts.join(" · ");
}

export function isSick(device) {
  return (device.sick || 0) > 0;
}
