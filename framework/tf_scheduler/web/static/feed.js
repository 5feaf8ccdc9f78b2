// Event list: newest events, then a stream; polls if a proxy blocks streams.

import { byId, show } from "./dom.js";
import { renderEvents } from "./lists.js";
import { RefusedError, get, listen, sleep } from "./net.js";

const MAX_EVENTS = 300;
const STREAM_RETRY = 60000; // ms until the next attempt after a blocked stream
const POLL_INTERVAL = 2000; // ms

export class Feed {
  #events = [];
  #last = null;
  #journal = "";
  #abort = null;

  // `onEvents` is called after new events.
  constructor(onEvents) {
    this.onEvents = onEvents;
  }

  start() {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  draw() {
    const task = byId("only-task").checked ? byId("task").value : null;
    const onlyWarnings = byId("warnings").checked;
    const matches = this.#events.filter((event) => (!onlyWarnings || event.warning) && (task === null || event.task === task));
    show(byId("events"), renderEvents(matches));
  }

  async #run(signal) {
    while (!signal.aborted) {
      try {
        await this.#load();
        this.#showState(false);
        await listen(`v1/events?follow=true&${this.#position()}`, signal, (_kind, data) => this.#receive(data));
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof RefusedError && error.status === 401) return this.stop();
        await this.#poll(signal, error instanceof RefusedError ? STREAM_RETRY : 3 * POLL_INTERVAL);
      }
      await sleep(POLL_INTERVAL);
    }
  }

  // Poll for `time` ms; the page's own requests show whether the scheduler answers.
  async #poll(signal, time) {
    const end = Date.now() + time;
    while (!signal.aborted && Date.now() < end) {
      this.#showState(true);
      await this.#load().catch(() => {});
      await sleep(POLL_INTERVAL);
    }
  }

  async #load() {
    let page = await get(`v1/events?limit=${MAX_EVENTS}${this.#last === null ? "" : `&${this.#position()}`}`);
    if (this.#last !== null && (page.last < this.#last || page.journal !== this.#journal)) {
      // Another journal: the service was reinstalled.
      page = await get(`v1/events?limit=${MAX_EVENTS}`);
      this.#events = [];
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

  #add(events) {
    if (events.length) {
      const newest = this.#events[0]?.number ?? 0;
      const newEvents = events.filter((event) => event.number > newest).reverse();
      this.#events = [...newEvents, ...this.#events].slice(0, MAX_EVENTS);
      this.#last = Math.max(this.#last ?? 0, ...events.map((event) => event.number));
      this.onEvents();
    }
    this.draw();
  }

  #showState(isPolling) {
    byId("events-state").textContent = isPolling ? "polled every 2 s" : "live";
  }
}
