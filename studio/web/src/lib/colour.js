// Colour scales: of one hue by lightness, and blue to orange where there are signs. Both are told apart without colour
// vision, because lightness alone orders them.
const STOPS = {
  light: { one: ["#fbfaf6", "#d5e6e8", "#8fbfcb", "#3d8aa3", "#125672", "#08283c"], two: ["#0b4a8f", "#7fb0d8", "#fbfaf6", "#e9a35f", "#8f3d06"] },
  dark: { one: ["#15181b", "#12333f", "#17617a", "#3a98ac", "#94d2d4", "#f6fdf4"], two: ["#8cc4ff", "#2b679f", "#15181b", "#a15a1c", "#ffbf80"] },
};
const LEVELS = 256;

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function ramp(stops, count) {
  const found = new Uint32Array(count);
  const colours = stops.map(rgb);
  for (let at = 0; at < count; at++) {
    const place = (at / (count - 1)) * (colours.length - 1);
    const low = Math.min(Math.floor(place), colours.length - 2);
    const [r, g, b] = [0, 1, 2].map((c) => Math.round(colours[low][c] + (colours[low + 1][c] - colours[low][c]) * (place - low)));
    found[at] = (255 << 24) | (b << 16) | (g << 8) | r;
  }
  return found;
}

const made = {};
export function scale(theme, signed) {
  const key = `${theme} ${signed}`;
  made[key] ??= ramp(STOPS[theme][signed ? "two" : "one"], signed ? 2 * LEVELS - 1 : LEVELS);
  return made[key];
}

export const curves = {
  linear: (share) => share,
  sqrt: (share) => Math.sqrt(share),
  log: (share) => Math.log1p(999 * share) / Math.log(1000),
};

// A number as a colour: its share of the largest, bent, with its sign.
export function index(value, peak, curve, signed) {
  const share = peak > 0 ? Math.min(1, Math.abs(value) / peak) : 0;
  const level = Math.round(curves[curve](share) * (LEVELS - 1));
  return signed ? LEVELS - 1 + (value < 0 ? -level : level) : level;
}

export function css(theme, value, peak, curve, signed) {
  const colour = scale(theme, signed)[index(value, peak, curve, signed)];
  return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
}

// What is legible on it.
export function ink(theme, value, peak, curve, signed) {
  const colour = scale(theme, signed)[index(value, peak, curve, signed)];
  const light = [0, 8, 16].reduce((sum, shift, at) => sum + [0.2126, 0.7152, 0.0722][at] * (((colour >> shift) & 255) / 255) ** 2.2, 0);
  return light > 0.2 ? "#0b0d0e" : "#ffffff";
}

// A whole map as pixels: codes of 8 bits by a table of 256 colours, numbers one by one.
export function pixels(map, theme, curve, peak, into) {
  const signed = map.signed;
  const colours = scale(theme, signed);
  const out = new Uint32Array(into.data.buffer);
  if (map.form === "uint8") {
    const table = new Uint32Array(256);
    for (let code = 0; code < 256; code++) {
      const value = signed ? ((code - 128) * map.peak) / 127 : (code * map.peak) / 255;
      table[code] = colours[index(value, peak, curve, signed)];
    }
    for (let at = 0; at < out.length; at++) out[at] = table[map.data[at]];
  } else {
    for (let at = 0; at < out.length; at++) out[at] = colours[index(map.data[at], peak, curve, signed)];
  }
}
