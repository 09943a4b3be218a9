/* Collectives round by round: who gives which pieces to whom. view_collective_draw.js draws it. */
'use strict';

T.view.collective = { name: 'collective', title: 'Collectives', document: null, latest: T.view.latest() };

{
  const tab = T.view.collective;
  T.view.tabs.push(tab);
  const units = { bytes: 1, latency: 1e-6, bandwidth: 1e9 }; /* fields are in us and GB/s */

  const change = (key, value) => {
    const values = T.view.values.collective;
    values[key] = value;
    delete values.at;
    if (key === 'operation') tab.offer();
    tab.load();
  };

  tab.build = (panel) => {
    tab.note = T.el('p', { class: 'soft' });
    tab.tiles = T.el('dl', { class: 'v-tiles' });
    tab.told = T.el('p', { class: 'told', role: 'status', 'aria-live': 'polite' });
    tab.stepper = T.view.stepper('rounds', (at) => tab.go(at));
    tab.circle = T.el('div', { class: 'circle' });
    tab.transfers = T.el('ul', { class: 'transfers' });
    tab.pieces = T.view.canvas({ label: 'pieces of each rank: a row for each rank, a column for each piece', height: () => tab.draw.height(), draw: (...all) => tab.draw.pieces(...all) });
    tab.times = T.view.canvas({ label: 'rounds over time', height: () => 44, draw: (...all) => tab.draw.times(...all), pick: (x) => tab.draw.pickTime(x) });
    panel.append(
      T.el('div', { class: 'panel' }, T.view.fields('collective', [
        { key: 'operation', title: 'operation', kind: 'select' }, { key: 'algorithm', title: 'algorithm', kind: 'select' },
        { key: 'ranks', title: 'ranks', kind: 'number', least: 1, most: 64 }, { key: 'root', title: 'root', kind: 'number', least: 0, most: 63 },
        { key: 'bytes', title: 'bytes of a rank', kind: 'number', least: 0, step: 'any' },
        { key: 'latency', title: 'latency, µs', kind: 'number', least: 0, step: 'any' },
        { key: 'bandwidth', title: 'GB/s', kind: 'number', least: 0, step: 'any' },
      ], change), tab.note),
      T.el('div', { class: 'panel' }, tab.tiles, T.el('div', { class: 'v-bar' }, tab.stepper.element), tab.told, tab.times.element,
        T.el('div', { class: 'round' }, tab.circle, T.el('div', {}, T.el('h2', {}, 'In this round'), tab.transfers))),
      T.el('div', { class: 'panel' }, T.el('h2', {}, 'What every rank has'), tab.pieces.element, (tab.key_ = T.el('p', { class: 'soft' }))));
  };

  tab.show = async () => {
    if (!tab.list) {
      try {
        tab.list = await T.view.get('/api/view/collectives');
      } catch (error) {
        return T.view.trouble(error.message);
      }
      T.view.options(tab.panel.querySelector('[data-key=operation]'), tab.list.operations.map((o) => [o, o.replace(/_/g, ' ')]));
    }
    T.view.values.collective = { operation: 'all_reduce', algorithm: 'ring', ranks: 8, bytes: 1048576, latency: 5, bandwidth: 50, ...T.view.values.collective };
    tab.offer();
    return tab.load();
  };

  /* Algorithms that have the operation; another one when the chosen has not. */
  tab.offer = () => {
    const values = T.view.values.collective;
    const has = tab.list.algorithms.filter((a) => a.operations.includes(values.operation)).map((a) => a.name);
    const name = String(values.algorithm).split(':')[0];
    if (has.length && !has.includes(name)) values.algorithm = has[0];
    T.view.options(tab.panel.querySelector('[data-key=algorithm]'), [...has.filter((n) => n !== name), values.algorithm].sort());
    const rooted = ['broadcast', 'reduce', 'gather', 'scatter'].includes(values.operation);
    tab.panel.querySelector('[data-key=root]').closest('label').hidden = !rooted;
    if (!rooted) delete values.root;
  };

  tab.load = () => {
    const values = T.view.values.collective;
    T.view.fill(tab.panel, values);
    T.view.write();
    const query = Object.fromEntries(['operation', 'algorithm', 'ranks', 'root', 'bytes', 'latency', 'bandwidth'].map((key) =>
      [key, values[key] === undefined || values[key] === '' ? '' : units[key] ? Number(values[key]) * units[key] : values[key]]));
    tab.latest(T.view.get('/api/view/collective', query), (doc) => tab.take(doc));
  };

  tab.take = (doc) => {
    tab.document = doc;
    T.tell(tab.note, `${doc.algorithm}: ${doc.help}`);
    const seconds = T.view.seconds;
    const sent = doc.rounds.reduce((sum, r) => sum + r.transfers.reduce((s, t) => s + t[3], 0), 0) * doc.piece_bytes;
    T.view.tiles(tab.tiles, [
      ['time', seconds(doc.seconds), 'walking through the rounds, all links alike'],
      ['rounds', T.grouped(doc.rounds.length)],
      ['pieces', doc.pieces ? `${T.grouped(doc.pieces)} of ${T.bytes(doc.piece_bytes)}` : 'none'],
      ['over all links', T.bytes(sent), 'of all ranks together'],
      ['formula', `${T.num(doc.formula_messages)} α + ${T.bytes(doc.formula_bytes)} β`, `${seconds(doc.formula_seconds)}: messages that follow one another, and bytes`],
    ]);
    tab.state = new T.view.Pieces(doc);
    tab.stepper.stop();
    const at = Number(T.view.values.collective.at);
    tab.stepper.set(at >= 0 ? at : 0, doc.rounds.length);
    tab.go(tab.stepper.at);
  };

  /* A line for each pair of ranks: all transfers between them in a round are one message. */
  const messages = (round) => {
    const found = new Map();
    for (const t of round ? round.transfers : []) {
      const key = `${t[0]} ${t[1]} ${t[4]}`;
      if (!found.has(key)) found.set(key, { from: t[0], to: t[1], adds: t[4], runs: [], num: 0 });
      found.get(key).runs.push(t[3] > 1 ? `${t[2]}–${t[2] + t[3] - 1}` : String(t[2]));
      found.get(key).num += t[3];
    }
    return [...found.values()];
  };

  const line = (m) => {
    const few = m.runs.slice(0, 3).join(', ') + (m.runs.length > 3 ? ', …' : '');
    const what = m.num === 0 ? 'a signal' : m.num === 1 ? `piece ${few}` : `${m.num} pieces: ${few}`;
    return `${m.from} → ${m.to}: ${what}${m.adds ? ', added' : ''}${m.num ? `, ${T.bytes(m.num * tab.document.piece_bytes)}` : ''}`;
  };

  tab.go = (at) => {
    const doc = tab.document, round = at > 0 ? doc.rounds[at - 1] : null;
    T.view.values.collective.at = at || undefined;
    tab.state.go(at);
    const seconds = T.view.seconds;
    T.tell(tab.told, round ? `Round ${at} of ${doc.rounds.length}: ${messages(round).length} message${messages(round).length === 1 ? '' : 's'}, from ${seconds(round.begin_seconds)} to ${seconds(round.end_seconds)}.${at === doc.rounds.length ? (tab.state.complete() ? ' Every rank has what the operation promises.' : ' Something is missing!') : ''}` : 'Before the first round.');
    const list = messages(round);
    T.fill(tab.transfers, list.slice(0, 64).map((m) => T.el('li', {}, line(m))),
      list.length > 64 ? T.el('li', { class: 'soft' }, `and ${list.length - 64} more`) : list.length ? null : T.el('li', { class: 'soft' }, 'Step forward to see the first round.'));
    tab.draw.circle(tab.circle, round);
    tab.pieces.draw();
    tab.times.draw();
    T.view.write();
  };

  tab.key = (event) => { if (tab.document) tab.stepper.key(event); };
  T.on('theme', () => { if (tab.document && tab.state) tab.go(tab.stepper.at); });
}

/* 61.5 us: as links are quick, microseconds are the rule. */
T.view.seconds = (s) => (s >= 1 ? `${T.num(s)} s` : s >= 1e-3 ? `${T.num(s * 1e3)} ms` : `${T.num(s * 1e6)} µs`);

/* What every rank has of every piece after some rounds: of sums a set of ranks whose terms are in
 * it, otherwise whether it is there. All transfers of a round read what was there before it. */
T.view.Pieces = class {
  constructor(doc) {
    this.doc = doc;
    this.ranks = doc.num_ranks;
    this.num = doc.pieces;
    this.all = (1n << BigInt(this.ranks)) - 1n;
    this.go(0);
  }

  start() {
    this.has = Array.from({ length: this.ranks }, () => new Array(this.num).fill(0n));
    this.doc.before.forEach((runs, r) => runs.forEach(([first, num]) => {
      for (let p = first; p < first + num; p++) this.has[r][p] = this.doc.sums ? 1n << BigInt(r) : this.all;
    }));
    this.at = 0;
  }

  go(at) {
    if (this.at === undefined || at < this.at) this.start();
    for (; this.at < at; this.at++) this.run(this.doc.rounds[this.at].transfers);
  }

  run(transfers) {
    const moves = transfers.map(([from, to, first, num, add]) => [to, first, this.has[from].slice(first, first + num), add]);
    for (const [to, first, values, add] of moves)
      values.forEach((v, i) => { this.has[to][first + i] = add ? this.has[to][first + i] | v : v; });
  }

  /* 0 to 1. */
  share(rank, piece) {
    const v = this.has[rank][piece];
    if (v === 0n || v === this.all) return v === 0n ? 0 : 1;
    let bits = 0;
    for (let rest = v; rest; rest &= rest - 1n) bits++;
    return bits / this.ranks;
  }

  complete() {
    return this.doc.after.every((runs, r) => runs.every(([first, num]) => this.has[r].slice(first, first + num).every((v) => v === this.all)));
  }
};
