import messages from "../messages.json";
import { page } from "./place.svelte.js";

// A message in the language of the page; {name} is filled in.
export function t(key, filled = {}) {
  const text = messages[page.language]?.[key] ?? messages.en[key];
  if (text === undefined) throw new Error(`there is no message ${key}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => String(filled[name] ?? ""));
}

export const LANGUAGES = Object.keys(messages);

// Four digits that count; very small and very large ones by powers of ten.
export function figure(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size < 1e-4 || size >= 1e6 ? value.toExponential(digits - 1) : value.toPrecision(digits);
  return text.replace("e+", "e").replaceAll("-", "−");
}

// A token with its spaces and line ends to be seen.
export const seen = (token) => token.replace(/^[ĠĊ▁ ]/, (c) => (c === "Ċ" ? "⏎" : "·")).replaceAll("\n", "⏎") || "∅";
