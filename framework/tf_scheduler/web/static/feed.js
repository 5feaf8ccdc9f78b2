// What happened: the newest, and then each event as it comes. Where streams do not get through, it is asked for.

import { byId, show } from "./dom.js";
import { events } from "./lists.js";
import { Refused, get, listen } from "./net.js";

const KEPT = 300;
const STREAM_AGAIN = 60000; // ms until a stream is tried again that did not get through
const PAUSE = 2000;

export class Feed {
  #entries = [];
  #last = null;
  #journal = "";
  #listening = null;
  #asks = false;

  // `news`: called when something has happened.
  constructor(news) {
    this.news = news;
  }

  get live() {
    return this.#listening !== null && !this.#asks;
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
        await this.#ask();
        this.#say(false);
        await listen(`v1/events?follow=true&${this.#known()}`, signal, (_kind, data) => this.#hear(data));
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status === 401) return this.stop();
        await this.#poll(signal, error instanceof Refused ? STREAM_AGAIN : 3 * PAUSE);
      }
      await pause(PAUSE);
    }
  }

  // Ask again and again, for so long; the page's own asking shows whether the scheduler is there at all.
  async #poll(signal, time) {
    const end = Date.now() + time;
    while (!signal.aborted && Date.now() < end) {
      this.#say(true);
      await this.#ask().catch(() => {});
      await pause(PAUSE);
    }
  }

  async #ask() {
    let page = await get(`v1/events?limit=${KEPT}${this.#last === null ? "" : `&${this.#known()}`}`);
    if (this.#last !== null && (page.last < this.#last || page.journal !== this.#journal)) {
      // The service was installed anew: what is shown is of another one.
      page = await get(`v1/events?limit=${KEPT}`);
      this.#entries = [];
    }
    this.#last = page.next;
    this.#journal = page.journal;
    this.#take(page.events);
  }

  #known() {
    return `after=${this.#last}&journal=${this.#journal}`;
  }

  #hear(event) {
    // Numbers grow: it is of another journal, which came since we asked.
    if (event && event.number <= this.#last) throw new Error("events of another service");
    this.#take(event ? [event] : []);
  }

  #take(more) {
    if (more.length) {
      const newest = this.#entries[0]?.number ?? 0;
      const fresh = more.filter((entry) => entry.number > newest).reverse();
      this.#entries = [...fresh, ...this.#entries].slice(0, KEPT);
      this.#last = Math.max(this.#last ?? 0, ...more.map((entry) => entry.number));
      this.news();
    }
    this.draw();
  }

  #say(asks) {
    this.#asks = asks;
    byId("events-state").textContent = asks ? "asked for every 2 s" : "live";
  }
}

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
