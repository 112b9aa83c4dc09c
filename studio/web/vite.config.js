import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// One script and one style, which inline.js puts into one file: no page of the studio loads anything beside it.
export default defineConfig({
  plugins: [svelte({ emitCss: true })],
  build: {
    target: "es2022",
    cssCodeSplit: false,
    assetsInlineLimit: 1 << 20,
    lib: { entry: "src/main.js", formats: ["iife"], name: "studio", fileName: () => "studio.js", cssFileName: "studio" },
  },
});
