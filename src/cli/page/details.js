/* What else there is of the run that is looked at: events, texts, memory, messages, loads of
 * experts, the planner's reasons and the settings. */
'use strict';

T.details = { doc: null, loads: [] };

T.details.show = (name, ...children) => {
  const shown = children.flat().filter(Boolean);
  T.id(name).hidden = shown.length === 0;
  T.fill(T.id(name + '-body'), shown);
};

/* ---- events and texts ---- */

T.details.grave = { failed: 'bad', gave_up: 'bad', spike: 'warn', slow: 'warn', rollback: 'warn', restart: 'warn', shrink: 'warn',
  replay: 'bad', corrupt: 'bad', start: 'plain', end: 'good', recovered: 'good' };

T.details.eventText = (event) => {
  if (event.reason) return event.reason;
  if (event.event === 'start') return `${event.ranks === 1 ? '1 rank' : `${event.ranks} ranks`} on ${event.host}, after step ${event.from_step}`;
  if (event.event === 'end') return `${T.grouped(event.steps)} steps are done, exit code ${event.exit_code}`;
  return Object.entries(event).filter(([key]) => !['time', 'event', 'version', 'id'].includes(key))
    .map(([key, value]) => `${key.replace(/_/g, ' ')} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ');
};

T.details.eventItem = (event) => {
  const kind = T.details.grave[event.event] || 'plain';
  const bad = event.event === 'end' && event.exit_code !== 0 ? 'warn' : kind;
  return T.el('li', { class: bad }, T.el('time', { class: 'soft' }, T.clock(event.time)), T.el('b', {}, event.event),
    T.known(event.at_step) ? T.el('span', { class: 'soft' }, `step ${T.grouped(event.at_step)}`) : null, T.el('span', { class: 'text' }, T.details.eventText(event)));
};

T.details.events = (events) => {
  T.details.show('story', events && events.length ? T.el('ol', { class: 'story scroll', tabindex: 0, 'aria-label': 'events, the newest first' },
    events.slice(-200).reverse().map(T.details.eventItem)) : null);
};

T.details.samples = (samples) => {
  T.details.show('samples', samples && samples.length ? T.el('ol', { class: 'texts scroll', tabindex: 0, 'aria-label': 'texts, the newest first' },
    samples.slice(-50).reverse().map((sample) => T.el('li', {}, T.el('span', { class: 'soft' }, `step ${T.grouped(sample.step)}`),
      T.el('p', {}, sample.prompt ? T.el('b', {}, sample.prompt) : null, T.details.sampleText(sample))))) : null);
};

T.details.sampleText = (sample) => sample.text || (sample.tokens ? sample.tokens.slice(0, 64).join(' ') : '');

/* ---- memory and messages ---- */

T.details.bars = (caption, rows, title, words) => {
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  return T.table(caption, [
    ...title,
    { title: 'bytes', number: true, cell: (row) => T.bytes(row.bytes) },
    { title: T.el('span', { class: 'hidden' }, 'share'), cell: (row) => {
      const bar = T.el('span', { class: 'meter' }, T.el('span', {}));
      bar.firstChild.style.width = `${(100 * row.bytes) / most}%`;
      bar.title = words(row);
      return bar;
    } },
  ], rows);
};

T.details.memory = (doc) => {
  const rows = ((doc && doc.memory) || []).filter((row) => row.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const all = rows.reduce((sum, row) => sum + row.bytes, 0);
  const places = [...new Set(rows.map((row) => row.place))];
  const why = doc && !doc.memory ? doc.memory_why || doc.why : null;
  T.details.show('memory', rows.length ? [
    T.el('p', { class: 'big' }, T.bytes(all), T.el('span', { class: 'soft' }, ` planned: ${places.map((place) =>
      `${T.bytes(rows.filter((row) => row.place === place).reduce((sum, row) => sum + row.bytes, 0))} ${place}`).join(', ')}`)),
    T.details.bars('memory by class and place', rows, [{ title: 'class', cell: (row) => row.class }, { title: 'place', cell: (row) => row.place }],
      (row) => `${T.percent(row.bytes / all)} of all`),
  ] : why ? T.el('p', { class: 'soft' }, why) : null);
};

T.details.messages = (doc) => {
  const rows = (doc && doc.messages) || [];
  T.details.show('messages', rows.length ? T.details.bars('messages of a step of rank 0, by axis', rows.slice().sort((a, b) => b.bytes - a.bytes), [
    { title: 'axis', cell: (row) => row.axis }, { title: 'operation', cell: (row) => row.operation },
    { title: 'calls', number: true, cell: (row) => T.grouped(row.calls) },
  ], (row) => `${T.grouped(row.calls)} calls`) : null);
};

/* ---- loads of experts ---- */

/* A row for each layer; a column for each expert, or for each step where only the busiest is known. */
T.details.loadRows = (doc) => {
  const loads = (doc && (doc.loads || doc.layer_loads)) || null;
  if (loads && Array.isArray(loads[0])) return { rows: loads, what: doc.steps ? 'step' : 'expert', steps: doc.steps || null };
  const lines = T.details.loads.slice();
  if (loads && !lines.some((line) => line.step === doc.step)) lines.unshift({ step: doc.step, loads });
  if (!lines.length) return null;
  return { rows: lines[0].loads.map((_, layer) => lines.map((line) => line.loads[layer])), what: 'step', steps: lines.map((line) => line.step) };
};

T.details.drawLoads = (doc) => {
  const found = T.details.loadRows(doc);
  T.id('loads').hidden = !found;
  if (!found) return;
  const body = T.id('loads-body');
  T.details.heat = found;
  if (!T.details.heatMap || !T.details.heatMap.element.isConnected) {
    T.fill(body, T.el('p', { class: 'soft' }, 'The busiest expert of each layer, as a multiple of the mean: 1 is equal.'));
    const host = T.el('div', { class: 'plot' });
    body.append(host);
    T.details.heatMap = T.heatMap(host, () => T.details.heat);
    body.append(T.details.heatMap.scale);
  }
  T.details.heatMap.update();
};

T.details.takeLoads = (id, line) => {
  if (id !== T.state.focus || !Array.isArray(line.layer_loads)) return;
  const { loads } = T.details;
  loads.push({ step: line.step, loads: line.layer_loads });
  if (loads.length > 240) T.details.loads = loads.filter((_, at) => at % 2 === 1);
  T.details.drawLoads(T.details.loadsDoc);
};

/* find(): {rows, what, steps}. */
T.heatMap = (host, find) => {
  let at = null;
  const colour = (value, most) => {
    const share = most > 1 ? Math.min(1, Math.max(0, (value - 1) / (most - 1))) : 0;
    return `color-mix(in oklab, ${T.colour('heat0')} ${100 - 100 * share}%, ${T.colour('heat1')})`;
  };
  const most = () => Math.max(2, /* a little more than the mean is no alarm */ ...find().rows.flat().filter(T.known));
  const words = (r, c) => `layer ${r}, ${find().what} ${find().steps ? find().steps[c] : c}: ${T.num(find().rows[r][c])}`;
  const heat = T.canvas(host, { height: 120,
    draw(context, width, height) {
      const { rows } = find(), left = 52, high = height / rows.length, top = most();
      rows.forEach((row, r) => {
        context.fillStyle = T.colour('soft');
        context.textBaseline = 'middle';
        if (high >= 12 || r % Math.ceil(12 / high) === 0) context.fillText('layer ' + r, 0, (r + 0.5) * high);
        row.forEach((value, c) => {
          const from = left + ((width - left) * c) / row.length, to = left + ((width - left) * (c + 1)) / row.length;
          context.fillStyle = T.known(value) ? colour(value, top) : T.colour('line');
          context.fillRect(from, r * high + 1, Math.max(1, to - from - (row.length < 60 ? 1 : 0)), Math.max(1, high - 2));
          if (to - from < 44 || high < 12) return;
          context.fillStyle = T.colour('ink');
          context.fillText(T.num(value, 3), from + 6, (r + 0.5) * high);
        });
      });
      if (!at) return;
      context.strokeStyle = T.colour('ink');
      const wide = (width - left) / rows[at[0]].length;
      context.strokeRect(left + wide * at[1], at[0] * high + 1, Math.max(2, wide - 1), high - 2);
      tip.show(left + wide * (at[1] + 0.5), at[0] * high, words(at[0], at[1]));
    },
    move(x, y) {
      const { rows } = find(), r = Math.floor((y / heat.height) * rows.length);
      const c = rows[r] ? Math.floor(((x - 52) / (heat.width - 52)) * rows[r].length) : -1;
      at = rows[r] && c >= 0 && c < rows[r].length ? [r, c] : null;
      if (!at) tip.hide();
    },
    leave() {
      at = null;
      tip.hide();
      heat.redraw();
    },
    key(event) {
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (!(event.key in moves)) return false;
      const { rows } = find(), [r, c] = at || [0, -1];
      const row = Math.min(Math.max(r + moves[event.key][0], 0), rows.length - 1);
      at = [row, Math.min(Math.max(c + moves[event.key][1], 0), rows[row].length - 1)];
      T.announce(words(at[0], at[1]));
      heat.redraw();
      return true;
    } });
  const tip = T.tip(host);
  heat.scale = T.el('p', { class: 'scale soft' });
  heat.update = () => {
    const { rows } = find(), top = most();
    heat.setHeight(Math.min(360, Math.max(56, rows.length * 18)));
    heat.label(`loads of experts: ${rows.length} layers, between 1 and ${T.num(top)} times the mean; arrow keys read values`);
    T.fill(heat.scale, '1', T.el('span', { class: 'ramp', 'aria-hidden': 'true' }), T.num(top, 3));
  };
  return heat;
};

/* ---- reasons and settings ---- */

T.details.planner = (doc) => {
  const lines = !doc ? [] : Array.isArray(doc) ? doc : typeof doc === 'string' ? doc.split('\n') : doc.reasons || doc.lines || (doc.reason ? [doc.reason] : []);
  const texts = lines.map((line) => (typeof line === 'string' ? line : line.reason || line.text || JSON.stringify(line))).filter(Boolean);
  T.details.show('planner', texts.length ? T.el('ul', { class: 'reasons' }, texts.map((line) => T.el('li', {}, line))) : null);
};

T.details.settings = (settings) => {
  const names = Object.keys(settings || {}).sort();
  if (!names.length) return T.details.show('settings');
  const groups = new Map();
  for (const name of names) {
    const group = name.split('.')[0];
    groups.set(group, [...(groups.get(group) || []), name]);
  }
  T.details.show('settings', T.el('div', { class: 'groups' }, [...groups].map(([group, all]) =>
    T.el('details', {}, T.el('summary', {}, group, T.el('span', { class: 'soft' }, ` ${all.length}`)),
      T.el('dl', {}, all.flatMap((name) => [T.el('dt', {}, name.slice(group.length + 1) || name), T.el('dd', {}, T.differ.text(settings[name]))]))))));
  return undefined;
};

T.details.load = async () => {
  const id = T.state.focus;
  T.details.loads = [];
  if (!id) {
    for (const name of ['story', 'samples', 'memory', 'messages', 'loads', 'planner', 'settings']) T.id(name).hidden = true;
    return;
  }
  const [doc, loads, planner] = await Promise.all([T.detailsOf(id), T.data.get('/api/loads', { id }), T.data.get('/api/planner', { id })]);
  if (id !== T.state.focus) return;
  T.details.doc = doc;
  T.details.loadsDoc = loads;
  T.details.all(doc, planner);
};

T.details.all = (doc, planner) => {
  T.details.events(doc && doc.events);
  T.details.samples(doc && doc.samples);
  T.details.memory(doc);
  T.details.messages(doc);
  T.details.drawLoads(T.details.loadsDoc);
  T.details.planner(planner);
  T.details.settings(doc && doc.settings);
};

/* Lines that come while the page is open; the list keeps the last 200. */
T.details.add = (id, list, line) => {
  const { doc } = T.details;
  if (id !== T.state.focus || !doc) return;
  doc[list] = [...(doc[list] || []), line].slice(-200);
  if (list === 'events') T.details.events(doc.events);
  else T.details.samples(doc.samples);
};

T.details.begin = () => {
  const load = () => T.details.load().catch((error) => T.emit('failed', error));
  T.on('focus', load);
  T.on('again', () => {
    T.state.details.clear();
    load();
  });
};
