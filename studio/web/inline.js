// Puts script and style into one file, with the digest of the sources it was built from.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FIXED = ["index.html", "inline.js", "package-lock.json", "package.json", "vite.config.js"];

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((one) =>
    one.isDirectory() ? files(join(folder, one.name)) : [join(folder, one.name).replaceAll("\\", "/")],
  );
}

const digest = createHash("sha256");
for (const name of [...FIXED, ...files("src")].sort()) digest.update(`${name}\0`).update(readFileSync(name)).update("\0");

const script = readFileSync("dist/studio.js", "utf8").replaceAll("</script", "<\\/script").trim();
const style = readFileSync("dist/studio.css", "utf8").trim();
if (/<script>|<style>/.test(script)) throw new Error("the script holds a tag that the page is cut at");
const page = readFileSync("index.html", "utf8")
  .replace("<!--digest-->", () => `<meta name="sources" content="${digest.digest("hex")}" />`)
  .replace("<!--style-->", () => `<style>${style}</style>`)
  .replace("<!--script-->", () => `<script>${script}</script>`);
writeFileSync("../../heed/studio/page.html", page);
