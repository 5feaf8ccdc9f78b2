// Event list: newest events, then a stream; polls if a proxy blocks streams.

import { byId, show } from "./dom.js";
import { events } from "./lists.js";
import { Refused, get, listen, pause } from "./net.js";

const KEPT = 300;
const STREAM_RETRY = 60000; // ms until the next attempt after a blocked stream
const PAUSE = 2000;

export class Feed {
  #entries = [];
  #last = null;
  #journal = "";
  #listening = null;

  // `news` is called after new events.
  constructor(news) {
    this.news = news;
  }

  start() {
    if (this.#listening) return;
    this.#listening = new AbortController();
    this.#run(this.#listening.signal);
  }

  stop() {
    this.#listening?.abort();
    this.#listening = null;
  }

  draw() {
    const task = byId("only-task").checked ? byId("task").value : null;
    const warnings = byId("warnings").checked;
    const wanted = this.#entries.filter((entry) => (!warnings || entry.warning) && (task === null || entry.task === task));
    show(byId("events"), events(wanted));
  }

  async #run(signal) {
    while (!signal.aborted) {
      try {
        await this.#load();
        this.#showState(false);
        await listen(`v1/events?follow=true&${this.#position()}`, signal, (_kind, data) => this.#receive(data));
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status === 401) return this.stop();
        await this.#poll(signal, error instanceof Refused ? STREAM_RETRY : 3 * PAUSE);
      }
      await pause(PAUSE);
    }
  }

  // Poll for `time` ms; the page's own requests show whether the scheduler answers.
  async #poll(signal, time) {
    const end = Date.now() + time;
    while (!signal.aborted && Date.now() < end) {
      this.#showState(true);
      await this.#load().catch(() => {});
      await pause(PAUSE);
    }
  }

  async #load() {
    let page = await get(`v1/events?limit=${KEPT}${this.#last === null ? "" : `&${this.#position()}`}`);
    if (this.#last !== null && (page.last < this.#last || page.journal !== this.#journal)) {
      // Another journal: the service was reinstalled.
      page = await get(`v1/events?limit=${KEPT}`);
      this.#entries = [];
    }
    this.#last = page.next;
    this.#journal = page.journal;
    this.#add(page.events);
  }

  #position() {
    return `after=${this.#last}&journal=${this.#journal}`;
  }

  #receive(event) {
    // A lower number belongs to another journal.
    if (event && event.number <= this.#last) throw new Error("events of another service");
    this.#add(event ? [event] : []);
  }

  #add(more) {
    if (more.length) {
      const newest = this.#entries[0]?.number ?? 0;
      const fresh = more.filter((entry) => entry.number > newest).reverse();
      this.#entries = [...fresh, ...this.#entries].slice(0, KEPT);
      this.#last = Math.max(this.#last ?? 0, ...more.map((entry) => entry.number));
      this.news();
    }
    this.draw();
  }

  #showState(polling) {
    byId("events-state").textContent = polling ? "polled every 2 s" : "live";
  }
}
