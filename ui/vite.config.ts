// How the page is built, tested and served while it is being worked on.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// `just ui-dev` shows the project of a `runner ui` that listens here.
const server = process.env['RUNNER_UI_URL'] ?? 'http://127.0.0.1:7878';

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    // Everything in files of its own: the policy allows no data: script or style.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: { '/api': { target: server, changeOrigin: true }, '/events': { target: server, changeOrigin: true } },
  },
  test: { include: ['tests/unit/**/*.test.ts'], environment: 'node' },
});
