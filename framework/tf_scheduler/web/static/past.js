// Main module of the page of past runs: reads the list every few seconds, also in a hidden tab, which keeps the page open.

import { byId, el, show } from "./dom.js";
import { sleep } from "./net.js";
import { Runs } from "./runs.js";

const MIN_INTERVAL = 5000; // ms
const INTERVAL_FACTOR = 10; // pause after an update, in durations of the update, so that a long history is read less often

const runs = new Runs({ isOfAll: true });

function drawHead({ services, store }) {
  byId("about").textContent = store ? `of this machine and of ${store}` : "of this machine";
  show(byId("links"), services.map(({ name, page }) => el("a", { href: page, "data-key": page }, `${name} (running)`)));
}

byId("runs").addEventListener("change", ({ target }) => target.dataset.run && runs.select(target.dataset.run, target.checked));

for (;;) {
  const start = performance.now();
  await runs.read();
  if (runs.list) drawHead(runs.list);
  await sleep(Math.max(MIN_INTERVAL, INTERVAL_FACTOR * (performance.now() - start)));
}
