// What is open, and what was read last: asked for by the address, kept for all views.
import { forget, get, isStatic, post, Refused } from "./api.js";
import { go, place } from "./place.svelte.js";
import { t } from "./words.js";

export const now = $state({ opened: null, model: null, reading: null, busy: false, wrong: "", file: null });

export function worded(error) {
  if (!(error instanceof Refused)) return String(error?.message ?? error);
  if (error.status === 0) return t("noServer");
  return error.message || t("notRecorded");
}

// Do it, and show what went wrong. A reading that the server has let go is made again, once.
export async function tried(work) {
  try {
    const found = await work();
    now.wrong = "";
    return found;
  } catch (error) {
    if (error instanceof Refused && error.status === 410) {
      forget();
      await read();
    } else now.wrong = worded(error);
    return null;
  }
}

export async function open() {
  now.opened = await tried(() => get("api/opened"));
  if (!now.opened) return;
  if (!now.opened.models.length) return place.view === "masks" ? undefined : go({ view: "runs" });
  if (!now.opened.models.includes(place.model)) go({ model: now.opened.models[0] });
  await choose(place.model);
}

export async function choose(model) {
  go({ model });
  now.busy = true;
  now.model = await tried(() => get("api/model", { model }));
  now.busy = false;
  if (isStatic()) return read();
  if (now.model && (place.text || place.ids)) await read();
}

const given = () => {
  if (["image", "sound"].includes(now.model?.takes)) return { file: now.file };
  if (place.ids && now.model?.takes === "pair") return { text: place.text, ids: place.ids.split(".").map(Number) };
  if (place.ids) return { ids: place.ids.split(".").map(Number) };
  const two = place.pair && ["texts", "pair"].includes(now.model?.takes);
  return two ? { text: place.text, pair: place.pair } : { text: place.text };
};

let last = 0;
let done = "";
const asked = () => JSON.stringify([place.model, place.text, place.pair, place.ids]);

// Texts that were left by going on from a candidate.
export const left = $state([]);

// Back and forth in the browser: another text is read again.
addEventListener("popstate", () => now.model && asked() !== done && (place.text || place.ids) && choose(place.model));

export async function read() {
  const mine = ++last;
  done = asked();
  now.busy = true;
  const found = await tried(() => (isStatic() ? get("api/read") : post("api/read", { model: place.model, ...given() })));
  if (mine !== last) return;
  now.busy = false;
  if (!found) return;
  now.reading = found;
  if (found.given && !place.text) go({ text: found.given.text ?? "", pair: found.given.pair ?? "" });
  settle();
}

// What the address names must be there.
export function settle() {
  const parts = now.reading.parts;
  const names = Object.keys(parts);
  const part = names.includes(place.part) ? place.part : names.includes("cross") ? "cross" : names[0];
  const { tokens, keys, layers } = parts[part];
  const layer = Math.min(Math.max(0, place.layer), layers.length - 1);
  const heads = layers[layer].heads;
  const head = ["mean", "max"].includes(place.head) || (/^\d+$/.test(place.head) && Number(place.head) < heads) ? place.head : "0";
  const row = place.row < tokens.length ? place.row : -1;
  const shown = layers[layer].shape[1] || keys.length;
  go({ part, layer, head, row, column: place.column < shown ? place.column : -1, zoom: part === place.part ? place.zoom : "" });
}

export const partNow = () => now.reading?.parts[place.part];
export const layerNow = () => partNow()?.layers[place.layer];

// Names of what is looked at: tokens, or numbers where a mixer looks at something else.
export function keysOf(part, layer) {
  const count = layer.shape[1] || part.keys.length;
  return count === part.keys.length ? part.keys : Array.from({ length: count }, (_, at) => String(at));
}
