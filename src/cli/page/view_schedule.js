/* Schedules of pipelines: choose one, change its sizes and costs, and step through its actions. All
 * times and sums are the simulator's; view_schedule_draw.js draws them. */
'use strict';

T.view.schedule = { name: 'schedule', title: 'Schedules', document: null, latest: T.view.latest() };

T.view.actionNames = {
  F: 'forward', B: 'backward', I: 'gradient of activations', W: 'gradient of weights', U: 'update',
};

{
  const tab = T.view.schedule;
  T.view.tabs.push(tab);
  const asked = ['name', 'csv', 'p', 'm', 'chunks', 'F', 'I', 'W', 'B', 'FB', 'U', 'send'];

  const change = (key, value) => {
    const values = T.view.values.schedule;
    values[key] = value;
    if (key === 'name') {
      delete values.csv;
      delete values.chunks;
    }
    delete values.at;
    tab.load();
  };

  const cost = (key, title, placeholder, help) =>
    ({ key, title, kind: 'number', least: 0, step: 'any', placeholder, help });

  const ownTable = () => {
    const area = T.el('textarea', { rows: 5, spellcheck: 'false', 'aria-label': 'a table of cells, a row for each rank', placeholder: '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1' });
    const file = T.el('input', { type: 'file', accept: '.csv,text/csv,text/plain', 'aria-label': 'read the table from a file',
      onchange: async () => { if (file.files[0]) area.value = (await file.files[0].text()).slice(0, 100000); } });
    const use = () => {
      const csv = area.value.trim().split(/\r?\n/).join('|');
      if (csv.length > 3800) return T.view.trouble(`the table has ${csv.length} letters, and an address takes 3800; trireme view --set layout.schedule=csv:FILE shows it`);
      T.view.values.schedule = { ...T.view.values.schedule, csv, name: undefined, p: undefined, m: undefined, chunks: undefined, at: undefined };
      return tab.load();
    };
    return T.el('details', { class: 'own' }, T.el('summary', {}, 'A table of your own'),
      T.el('p', { class: 'soft' }, 'A row for each rank, cells like 3F7: chunk 3, forward of micro-batch 7; B is a backward, I and W its two halves.'),
      area, T.el('p', {}, T.el('button', { type: 'button', onclick: use }, 'Show it'), ' ', file));
  };

  tab.build = (panel) => {
    tab.tiles = T.el('dl', { class: 'v-tiles' });
    tab.note = T.el('p', { class: 'soft' });
    tab.told = T.el('p', { class: 'told', role: 'status', 'aria-live': 'polite' });
    tab.stepper = T.view.stepper('actions, in the order in which they begin', (at) => tab.go(at));
    tab.table = T.el('div', {});
    tab.legend = T.el('ul', { class: 'legend' });
    tab.picture = T.view.canvas({
      label: 'ranks and time: every action as a box with its letter', height: () => tab.draw.height(),
      width: (room) => tab.draw.width(room), draw: (...all) => tab.draw.picture(...all), pick: (x, y) => tab.pick(x, y),
    });
    tab.memory = T.view.canvas({
      label: 'live activations of each rank over time', height: () => tab.draw.memoryHeight(),
      width: (room) => tab.draw.width(room), draw: (...all) => tab.draw.memory(...all), pick: (x) => tab.pickTime(x),
    });
    tab.picture.element.addEventListener('scroll', () => { tab.memory.element.scrollLeft = tab.picture.element.scrollLeft; });
    tab.memory.element.addEventListener('scroll', () => { tab.picture.element.scrollLeft = tab.memory.element.scrollLeft; });
    const zoom = (factor, label, text) => T.el('button', { type: 'button', 'aria-label': label, title: label, onclick: () => tab.zoomBy(factor) }, text);
    panel.append(
      T.el('div', { class: 'panel' },
        T.view.fields('schedule', [
          { key: 'name', title: 'schedule', kind: 'select' },
          { key: 'p', title: 'ranks p', kind: 'number', least: 1, most: 64 },
          { key: 'm', title: 'micro-batches m', kind: 'number', least: 1, most: 256 },
          { key: 'chunks', title: 'chunks of a rank', kind: 'number', least: 1, most: 16 },
        ], change),
        T.view.fields('costs', [
          cost('F', 'F', '1', 'forward of a chunk'), cost('I', 'I', '1', 'gradient of activations'),
          cost('W', 'W', '1', 'gradient of weights'), cost('B', 'B', 'I + W', 'a whole backward'),
          cost('FB', 'pair', 'F + B', 'a forward and a backward that overlap'), cost('U', 'update', '0', 'the update'),
          cost('send', 'send', '0', 'a message to a neighbour'),
        ], change),
        tab.note, ownTable()),
      T.el('div', { class: 'panel' }, tab.tiles,
        T.el('div', { class: 'v-bar' }, tab.stepper.element, zoom(1.5, 'wider', '+'), zoom(1 / 1.5, 'narrower', '−'), zoom(0, 'all of it', 'fit')),
        tab.told, tab.picture.element, tab.legend),
      T.el('div', { class: 'panel' }, T.el('h2', {}, 'Live activations'),
        T.el('p', { class: 'soft' }, 'Chunks of a rank whose forward has run and whose backward has not ended, over the same time.'), tab.memory.element),
      T.el('div', { class: 'panel' }, T.el('h2', {}, 'Ranks at the cursor'), tab.table));
  };

  tab.show = async () => {
    if (!tab.list) {
      try {
        tab.list = await T.view.get('/api/view/schedules');
      } catch (error) {
        return T.view.trouble(error.message);
      }
      const options = tab.list.schedules.map((s) => [s.name, s.name]);
      if (tab.list.file) options.push(['file', 'of the settings (' + tab.list.file + ')']);
      T.view.options(tab.panel.querySelector('[data-key=name]'), options);
    }
    return tab.load();
  };

  tab.load = () => {
    const values = T.view.values.schedule;
    if (!values.csv) T.view.values.schedule = { ...tab.list.start, ...Object.fromEntries(Object.entries(values).filter(([, v]) => v !== undefined && v !== '')) };
    T.view.fill(tab.panel, T.view.values.schedule);
    T.view.write();
    const query = Object.fromEntries(asked.map((key) => [key, T.view.values.schedule[key]]));
    tab.latest(T.view.get('/api/view/schedule', query), (document_) => tab.take(document_));
  };

  tab.take = (doc) => {
    tab.document = doc;
    tab.actions = [];
    doc.ranks.forEach((rank, r) => rank.actions.forEach((a, i) => tab.actions.push({ rank: r, kind: a[0], chunk: a[1], microbatch: a[2], start: a[3], end: a[4], pair: a[5] === true, place: i })));
    tab.actions.sort((a, b) => a.start - b.start || a.rank - b.rank || a.place - b.place);
    tab.zoom = 1;
    tab.tell(doc);
    T.view.fill(tab.panel, { ...T.view.values.schedule, p: doc.num_ranks, m: doc.microbatches, chunks: doc.chunks_per_rank });
    const at = T.view.values.schedule.at;
    tab.stepper.stop();
    tab.stepper.set(at === undefined || at === '' ? tab.actions.length : Number(at) || 0, tab.actions.length);
    tab.go(tab.stepper.at);
  };

  tab.tell = (doc) => {
    const order = tab.list.schedules.find((s) => s.name === doc.name);
    T.tell(tab.note, order ? `${order.name}: ${order.help}. It needs ${order.needs}.` : 'A table of your own.');
    const share = (v) => T.percent(v);
    const known = (v, text) => (T.known(v) ? ` (formula ${text})` : '');
    T.view.tiles(tab.tiles, [
      ['time', T.num(doc.time), 'from the first start to the last end, in units'],
      ['work of a rank', T.num(doc.work), 'of the busiest'],
      [doc.asynchronous ? 'idle, in the steady state' : 'bubble', share(doc.bubble_share) + known(doc.formula_bubble_share, share(doc.formula_bubble_share)), 'idle share of the rank with most, between its first and last action'],
      ['activations', T.num(doc.activations) + known(doc.formula_activations, T.num(doc.formula_activations)), "of the rank with most, in micro-batches of a rank's layers"],
      ['copies of weights', T.num(doc.weight_copies), "of the rank with most, in shares of a rank's layers"],
      ['messages', T.grouped(doc.messages.length), 'from rank to rank'],
    ]);
    const kinds = ['F', 'B', 'I', 'W', 'U'].filter((k) => tab.actions.some((a) => a.kind === k));
    T.fill(tab.legend, kinds.map((k) => T.el('li', {}, T.el('span', { class: 'key kind-' + k, 'aria-hidden': true }, k), ` ${T.view.actionNames[k]}`)),
      doc.chunks_per_rank > 1 || doc.routes > 1 ? T.el('li', { class: 'soft' }, 'F3: micro-batch 3; faded: further chunks of a rank, which wider boxes name: 7F3 is of chunk 7') : T.el('li', { class: 'soft' }, 'F3: micro-batch 3; rank r holds chunk r'));
  };

  /* The cursor stands behind the at-th action: it and all before it have begun. */
  tab.go = (at) => {
    const last = tab.actions[at - 1];
    T.view.values.schedule.at = at === tab.actions.length ? undefined : at;
    tab.current = last || null;
    tab.time = at === tab.actions.length ? Infinity : last ? last.start : -1;
    T.tell(tab.told, !last ? 'Before the first action.'
      : `${at === tab.actions.length ? 'The end. The last action to begin: ' : ''}rank ${last.rank}: ${T.view.actionNames[last.kind]} of micro-batch ${last.microbatch}, chunk ${last.chunk}, from ${T.num(last.start)} to ${T.num(last.end)}${last.pair ? ', together with the next' : ''}.`);
    tab.showRanks();
    tab.picture.draw();
    tab.memory.draw();
    if (last && tab.zoom > 1) tab.picture.show(tab.draw.x(last.start), tab.draw.x(last.end));
    T.view.write();
  };

  tab.liveAt = (rank) => {
    let live = 0;
    for (const [time, held] of tab.document.ranks[rank].live) {
      if (time > tab.time) break;
      live = held;
    }
    return live;
  };

  tab.doing = (rank) => {
    const a = tab.document.ranks[rank].actions.find((x) => x[3] <= tab.time && x[4] > tab.time);
    return a ? `${a[1]}${a[0]}${a[2]}` : tab.time === Infinity ? 'done' : 'idle';
  };

  tab.showRanks = () => {
    const doc = tab.document, most = Math.max(1, ...doc.ranks.map((r) => r.live_chunks));
    const meter = (live) => T.el('span', { class: 'v-meter', 'aria-hidden': true }, T.el('span', { style: { width: `${(100 * live) / most}%` } }));
    T.fill(tab.table, T.table('ranks at the cursor', [
      { title: 'rank', cell: (r) => String(r.rank) },
      { title: 'now', cell: (r) => tab.doing(r.rank) },
      { title: 'live', number: true, cell: (r) => String(tab.liveAt(r.rank)) },
      { title: '', cell: (r) => meter(tab.liveAt(r.rank)) },
      { title: 'most', number: true, cell: (r) => String(r.live_chunks) },
      { title: 'busy', number: true, cell: (r) => T.num(r.busy) },
      { title: 'idle', number: true, cell: (r) => T.num(r.idle) },
      { title: 'sends', number: true, cell: (r) => T.grouped(r.sends) },
    ], doc.ranks));
  };

  tab.pick = (x, y) => {
    const rank = tab.draw.rankAt(y), time = tab.draw.timeAt(x);
    const at = tab.actions.findIndex((a) => a.rank === rank && a.start <= time && a.end > time);
    if (at >= 0) tab.stepper.go(at + 1);
    else tab.pickTime(x);
  };

  tab.pickTime = (x) => {
    const time = tab.draw.timeAt(x);
    tab.stepper.go(tab.actions.filter((a) => a.start <= time).length);
  };

  tab.zoomBy = (factor) => {
    tab.zoom = factor === 0 ? 1 : Math.max(1, Math.min(40, tab.zoom * factor));
    tab.picture.draw();
    tab.memory.draw();
    if (tab.current) requestAnimationFrame(() => tab.picture.show(tab.draw.x(tab.current.start), tab.draw.x(tab.current.end)));
  };

  tab.key = (event) => {
    if (event.key === '+' || event.key === '-') tab.zoomBy(event.key === '+' ? 1.5 : 1 / 1.5);
    else if (tab.document) tab.stepper.key(event);
  };
}
