/* The ranks of the run that is looked at: where each of them is, whom it waits for, and how much of
 * its time it waits. A dead one says so in words, not by its colour alone. */
'use strict';

T.ranks = { doc: null, tiles: new Map(), asTable: null };

T.ranks.sick = (rank) => rank.state === 'dead' || rank.state === 'silent';

T.ranks.where = (rank) => {
  const instruction = rank.instruction === null || rank.instruction === undefined ? '' : String(rank.instruction);
  return [rank.doing, instruction && /^\d+$/.test(instruction) ? `instruction ${instruction}` : instruction].filter(Boolean).join(', ') || '–';
};

/* Its place on the mesh, along axes that have more than one. */
T.ranks.coords = (rank) => Object.entries(rank.coords || {}).filter(([axis]) => T.ranks.axes.has(axis))
  .map(([axis, at]) => `${axis} ${at}`).join(' · ');

T.ranks.axes = new Set();
T.ranks.findAxes = (ranks) => {
  T.ranks.axes = new Set(ranks.flatMap((rank) => Object.entries(rank.coords || {}).filter(([, at]) => at > 0).map(([axis]) => axis)));
};

/* Own time of both, 0 to 1; null: not known yet. */
T.ranks.share = (rank) => {
  const all = (rank.own_ms || 0) + (rank.waited_ms || 0);
  return all > 0 ? rank.own_ms / all : null;
};

T.ranks.waits = (rank) => {
  if (T.known(rank.waiting_for)) return `waits for rank ${rank.waiting_for}${rank.waiting_s > 1 ? ` since ${T.duration(rank.waiting_s)}` : ''}`;
  return rank.state === 'waiting' ? 'waits' : '';
};

T.ranks.words = (rank) => {
  const own = T.ranks.share(rank);
  return `rank ${rank.rank}: ${rank.state}${rank.signal ? ` by ${rank.signal}` : ''}, step ${T.grouped(rank.step)}, ${T.ranks.where(rank)}` +
    `${T.ranks.waits(rank) ? ', ' + T.ranks.waits(rank) : ''}${own === null ? '' : `, own time ${T.percent(own)}`}`;
};

T.ranks.makeTile = () => {
  const part = (name, tag = 'p') => T.el(tag, { class: name });
  const tile = { element: T.el('li', { class: 'tile' }), name: part('name'), state: part('state', 'span'), where: part('where'),
    waits: part('waits'), own: T.el('span', { class: 'own' }), times: part('times soft'), place: part('soft place', 'span') };
  tile.element.append(T.el('div', { class: 'head' }, tile.name, tile.place, T.el('span', { class: 'grow' }), tile.state),
    tile.where, tile.waits, T.el('div', { class: 'balance', 'aria-hidden': 'true' }, tile.own), tile.times);
  return tile;
};

T.ranks.updateTile = (tile, rank) => {
  const own = T.ranks.share(rank);
  tile.element.className = 'tile ' + rank.state;
  tile.element.dataset.rank = rank.rank;
  T.tell(tile.name, 'rank ' + rank.rank);
  T.tell(tile.place, T.ranks.coords(rank));
  T.tell(tile.state, rank.state + (rank.signal ? ': ' + rank.signal : ''));
  T.tell(tile.where, T.known(rank.step) ? `step ${T.grouped(rank.step)} · ${T.ranks.where(rank)}` : T.ranks.where(rank));
  tile.where.title = T.ranks.where(rank);
  T.tell(tile.waits, T.ranks.waits(rank));
  tile.own.style.width = own === null ? '0' : `${100 * own}%`;
  T.tell(tile.times, own === null ? '' : `own ${T.num(rank.own_ms, 3)} ms · waiting ${T.num(rank.waited_ms, 3)} ms`);
};

T.ranks.drawTiles = (ranks) => {
  const body = T.id('ranks-body');
  let list = body.querySelector('ul.tiles');
  if (!list) {
    list = T.el('ul', { class: 'tiles', 'aria-label': 'ranks' });
    T.fill(body, list);
    T.ranks.tiles.clear();
  }
  for (const [rank, tile] of T.ranks.tiles)
    if (!ranks.some((r) => r.rank === rank)) {
      tile.element.remove();
      T.ranks.tiles.delete(rank);
    }
  for (const rank of ranks) {
    if (!T.ranks.tiles.has(rank.rank)) {
      T.ranks.tiles.set(rank.rank, T.ranks.makeTile());
      list.append(T.ranks.tiles.get(rank.rank).element);
    }
    T.ranks.updateTile(T.ranks.tiles.get(rank.rank), rank);
  }
};

T.ranks.drawTable = (ranks) => {
  const old = T.id('ranks-body').firstChild, top = old ? old.scrollTop : 0;
  T.fill(T.id('ranks-body'), T.table('ranks', [
    { title: 'rank', number: true, cell: (r) => String(r.rank) },
    { title: 'state', cell: (r) => T.el('span', { class: 'state ' + r.state }, r.state + (r.signal ? ': ' + r.signal : '')) },
    { title: 'step', number: true, cell: (r) => T.grouped(r.step) },
    { title: 'instruction', cell: (r) => T.ranks.where(r) },
    { title: 'waits for', cell: (r) => T.ranks.waits(r).replace('waits for ', '') },
    { title: 'own ms', number: true, cell: (r) => T.num(r.own_ms, 3) },
    { title: 'waiting ms', number: true, cell: (r) => T.num(r.waited_ms, 3) },
    { title: 'place', cell: (r) => T.ranks.coords(r) },
    { title: 'host', cell: (r) => r.host || '–' },
    { title: 'memory', number: true, cell: (r) => T.bytes(r.memory_bytes) },
  ], ranks));
  T.id('ranks-body').firstChild.scrollTop = top;
};

/* Counts by state, and the dead by name. */
T.ranks.alarm = (ranks, why) => {
  const sick = ranks.filter(T.ranks.sick).slice(0, 8).map((rank) =>
    `Rank ${rank.rank} is ${rank.state}${rank.signal ? ` (${rank.signal})` : ''} at step ${T.grouped(rank.step)}: ${T.ranks.where(rank)}.`);
  const text = [...sick, why && !sick.some((line) => line.includes(why)) ? why : ''].filter(Boolean).join(' ');
  const alarm = T.id('ranks-alarm');
  T.tell(alarm, text);
  alarm.className = sick.length ? 'alarm bad' : text ? 'alarm' : '';
};

T.ranks.age = (doc) => {
  if (T.data.held) return 'at the end';
  return doc.age_s > 5 ? `as of ${T.duration(doc.age_s)} ago` : '';
};

T.ranks.draw = () => {
  const doc = T.ranks.doc, ranks = (doc && doc.ranks) || [];
  T.id('ranks').hidden = !doc || (ranks.length === 0 && !doc.why);
  if (!doc) return;
  T.ranks.findAxes(ranks);
  T.id('ranks-tools').hidden = ranks.length === 0;
  const table = T.ranks.asTable === null ? ranks.length > 48 : T.ranks.asTable;
  T.tell(T.id('ranks-age'), [ranks.length > 1 ? T.ranks.counts(ranks) : '', T.ranks.age(doc)].filter(Boolean).join(' · '));
  T.ranks.alarm(ranks, doc.why);
  if (table) T.ranks.drawTable(ranks);
  else T.ranks.drawTiles(ranks);
};

T.ranks.counts = (ranks) => {
  const counts = {};
  for (const rank of ranks) counts[rank.state] = (counts[rank.state] || 0) + 1;
  return Object.entries(counts).map(([state, num]) => `${num} ${state}`).join(', ');
};

T.ranks.take = (id, doc) => {
  if (id !== T.state.focus) return;
  T.ranks.doc = doc;
  T.ranks.draw();
};

T.ranks.load = async () => {
  const id = T.state.focus;
  const doc = id ? await T.data.get('/api/ranks', { id }) : null;
  T.ranks.take(id, doc);
};

T.ranks.begin = () => {
  const button = T.el('button', { type: 'button', class: 'small', 'aria-pressed': 'false' }, 'table');
  button.addEventListener('click', () => {
    T.ranks.asTable = !(T.ranks.asTable === null ? ((T.ranks.doc && T.ranks.doc.ranks) || []).length > 48 : T.ranks.asTable);
    button.setAttribute('aria-pressed', String(T.ranks.asTable));
    T.fill(T.id('ranks-body'));
    T.ranks.draw();
  });
  T.id('ranks-tools').append(button);
  T.on('focus', () => {
    T.ranks.doc = null;
    T.fill(T.id('ranks-body'));
    T.ranks.draw();
    T.ranks.load().catch((error) => T.emit('failed', error));
  });
  T.on('again', () => T.ranks.load().catch((error) => T.emit('failed', error)));
};
