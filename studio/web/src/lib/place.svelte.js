// The whole view is in the address: what is read, where one looks, and how it is drawn.
const USUAL = {
  view: "maps", model: "", text: "", pair: "", ids: "", part: "", layer: 0, head: "0", row: -1, column: -1,
  curve: "sqrt", peak: "own", zoom: "", way: "read", exact: "", metric: "", logs: "", other: "", against: "", table: "", what: "", kind: "", changes: "", tokens: "",
};
const NUMBERS = new Set(["layer", "row", "column"]);

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(
    Object.entries(USUAL).map(([name, usual]) => {
      const value = given.get(name);
      if (value === null) return [name, usual];
      return [name, NUMBERS.has(name) ? (/^-?\d{1,9}$/.test(value) ? Number(value) : usual) : value];
    }),
  );
}

export const place = $state(read());

function written() {
  const told = Object.entries(place).filter(([name, value]) => value !== USUAL[name]);
  return new URLSearchParams(told.map(([name, value]) => [name, String(value)])).toString();
}

export function go(change, { back = false } = {}) {
  Object.assign(place, change);
  const hash = `#${written()}`;
  if (hash !== location.hash) history[back ? "pushState" : "replaceState"](null, "", hash);
}

addEventListener("popstate", () => Object.assign(place, read()));
addEventListener("hashchange", () => Object.assign(place, read()));

// How the page is, on this machine: what a link should not bring along.
const store = (name, usual) => {
  try {
    return localStorage.getItem(`heed.${name}`) ?? usual;
  } catch {
    return usual; // a file on the disk may keep nothing
  }
};
const dark = matchMedia("(prefers-color-scheme: dark)");
export const page = $state({
  language: store("language", navigator.language.startsWith("zh") ? "zh" : "en"),
  chosen: store("theme", ""),
  theme: "light",
});

function dress() {
  page.theme = page.chosen || (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = page.theme;
  document.documentElement.lang = page.language;
}
dark.addEventListener("change", dress);
dress();

export function prefer(change) {
  Object.assign(page, change);
  for (const [name, value] of [["language", page.language], ["theme", page.chosen]]) {
    try {
      localStorage.setItem(`heed.${name}`, value);
    } catch {
      // nothing is kept
    }
  }
  dress();
}
