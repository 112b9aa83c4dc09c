// What the server says, kept by its address; in a file for the disk it was recorded.
const kept = new Map();
const LIMIT = 400;
let recorded = null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const isStatic = () => document.getElementById("recorded").textContent.trim() !== "";

async function records() {
  if (recorded === null) {
    const raw = bytesOf(document.getElementById("recorded").textContent.trim());
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    recorded = JSON.parse(await new Response(stream).text());
  }
  return recorded;
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return bytes;
}

async function answer(path, body) {
  if (isStatic()) {
    const found = (await records())[path];
    if (found === undefined) throw new Refused(404, "");
    return bytesOf(found);
  }
  let response;
  try {
    response = await fetch(path, body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Refused(0, "");
  }
  const raw = new Uint8Array(await response.arrayBuffer());
  if (!response.ok) {
    let message = response.statusText;
    try {
      message = JSON.parse(new TextDecoder().decode(raw)).error.message;
    } catch {
      // a proxy's page: its status says enough
    }
    throw new Refused(response.status, message);
  }
  return raw;
}

const json = (raw) => {
  const found = JSON.parse(new TextDecoder().decode(raw));
  if (found && found.error) throw new Refused(400, found.error.message);
  return found;
};

export function address(path, asked = {}) {
  const query = new URLSearchParams(asked).toString();
  return query ? `${path}?${query}` : path;
}

function once(key, make) {
  if (!kept.has(key)) {
    const made = make();
    kept.set(key, made);
    made.catch(() => kept.delete(key));
    if (kept.size > LIMIT) kept.delete(kept.keys().next().value);
  }
  return kept.get(key);
}

export const get = (path, asked) => once(`j ${address(path, asked)}`, async () => json(await answer(address(path, asked))));
export const fresh = async (path, asked) => json(await answer(address(path, asked)));
export const post = async (path, body) => json(await answer(path, body));

// A message: one line of JSON, then numbers. Floats are copied, so that they begin at a multiple of four.
function parsed(raw) {
  const end = raw.indexOf(10);
  const head = json(raw.subarray(0, end < 0 ? raw.length : end));
  return [head, end < 0 ? raw.subarray(raw.length) : raw.subarray(end + 1)];
}

export function map(path, asked) {
  return once(`m ${address(path, asked)}`, async () => {
    const [head, body] = parsed(await answer(address(path, asked)));
    return withData(head, body);
  });
}

function withData(head, body) {
  const high = Math.ceil(head.rows / head.step);
  const wide = Math.ceil(head.columns / head.step);
  const data = head.form === "float32" ? new Float32Array(body.slice().buffer) : body;
  return { ...head, data, high, wide };
}

export function thumbnails(id, part) {
  return once(`t ${id} ${part}`, async () => {
    const [head, body] = parsed(await answer(address("api/thumbnails", { id, part })));
    const floats = new Float32Array(body.slice().buffer);
    let at = 0;
    return head.layers.map((layer) => {
      const [heads, high, wide] = layer.shape;
      const maps = Array.from({ length: heads }, (_, head_) => {
        const data = floats.subarray(at, (at += high * wide));
        return { form: "float32", data, high, wide, rows: high, columns: wide, step: 1, peak: layer.peaks[head_], signed: data.some((one) => one < 0) };
      });
      return { layer: layer.layer, maps };
    });
  });
}

// The number of a cell, as far as the map tells it: exactly, or within half of one of 255 levels.
export function valueAt(map, row, column) {
  const at = Math.floor(row / map.step) * map.wide + Math.floor(column / map.step);
  if (map.form === "float32") return map.data[at];
  return map.signed ? ((map.data[at] - 128) * map.peak) / 127 : (map.data[at] * map.peak) / 255;
}

export const isExact = (map) => map.form === "float32" && map.step === 1;
export const forget = () => kept.clear();
