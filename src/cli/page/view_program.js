/* The program of a rank's step: segments, layers and instructions as a list that folds and is
 * searched; an instruction's values, and who makes and who reads them. */
'use strict';

T.view.program = { name: 'program', title: 'Program', document: null, latest: T.view.latest() };

{
  const tab = T.view.program;
  T.view.tabs.push(tab);

  const change = (key, value) => {
    T.view.values.program[key] = value;
    if (key === 'recipe') T.view.values.program = { recipe: value };
    delete T.view.values.program.at;
    tab.load();
  };

  tab.build = (panel) => {
    tab.note = T.el('p', { class: 'soft' });
    tab.search = T.el('input', { type: 'search', placeholder: 'operator or value', 'aria-label': 'instructions whose operator or values contain (key: /)', oninput: T.throttle(120, () => tab.filter()) });
    tab.found = T.el('span', { class: 'soft', role: 'status' });
    tab.calls = T.el('div', { class: 'calls scroll', tabindex: 0, role: 'region', 'aria-label': 'timeline: segments in the order in which they run' });
    tab.detail = T.el('div', { class: 'panel detail', 'aria-live': 'polite' });
    tab.list = new T.view.List((row) => tab.pick(row), () => tab.search.focus());
    const fold = (text, label, depth) => T.el('button', { type: 'button', title: label, onclick: () => tab.foldAll(depth) }, text);
    panel.append(
      T.el('div', { class: 'panel' }, T.view.fields('program', [...T.view.layoutFields(), { key: 'rank', title: 'rank', kind: 'number', least: 0, most: 63 }], change), tab.note),
      T.el('div', { class: 'panel' }, T.el('h2', {}, 'Timeline'), tab.calls),
      T.el('div', { class: 'side wide' },
        T.el('div', { class: 'panel' },
          T.el('div', { class: 'v-bar' }, tab.search, fold('segments', 'fold everything into segments', 1), fold('layers', 'fold into layers', 2), fold('all', 'show every instruction', 3), tab.found),
          tab.list.element),
        tab.detail));
  };

  tab.show = () => tab.load();

  tab.load = () => {
    T.view.write();
    const values = T.view.values.program;
    const layout = Object.fromEntries(T.view.layoutKeys.map((key) => [key, values[key]]));
    const both = Promise.all([T.view.get('/api/view/layout', layout), T.view.get('/api/view/program', { ...layout, rank: values.rank })]);
    tab.latest(both, ([fields, doc]) => {
      T.view.fillRecipes(tab.panel, fields);
      T.view.fill(tab.panel, { ...fields.layout, recipe: values.recipe || '', rank: doc.rank });
      tab.take(doc);
    });
  };

  tab.take = (doc) => {
    tab.document = doc;
    tab.instructions = [];
    tab.groups = [];
    for (const segment of doc.segments) addSegment(segment);
    linkValues();
    T.tell(tab.note, `${doc.model.kind}, rank ${doc.rank} of ${doc.num_ranks}: ${T.grouped(doc.num_instructions)} instructions in ${doc.segments.length} segments, ${T.grouped(doc.num_calls)} calls, ${T.grouped(doc.num_messages)} messages, ${T.count(doc.flops)} FLOP a step; ${doc.spaces.map((s) => `${s.name} ${T.bytes(s.bytes)}`).join(', ')}`);
    showCalls(doc);
    tab.filter();
    const at = Number(T.view.values.program.at);
    if (tab.instructions[at]) tab.jump(at);
    else tab.tellNothing();
  };

  const layerName = (layer, layers) => (layer < 0 ? 'before the layers' : layer >= layers ? 'after the layers' : `layer ${layer}`);

  const addSegment = (segment) => {
    const own = { segment, open: true, layers: [] };
    for (const instruction of segment.instructions) {
      instruction.made = instruction.makes.map((v) => v.name).join(', ') || instruction.reads.map((v) => v.name)[0] || '';
      instruction.text = [instruction.operator, ...instruction.makes.map((v) => v.name), ...instruction.reads.map((v) => v.name)].join(' ').toLowerCase();
      const last = own.layers[own.layers.length - 1];
      const group = last && last.layer === instruction.layer ? last : { layer: instruction.layer, open: true, list: [], title: layerName(instruction.layer, tab.document.model.layers) };
      if (group !== last) own.layers.push(group);
      group.list.push(instruction);
      instruction.group = group;
      instruction.owner = own;
      tab.instructions[instruction.number] = instruction;
    }
    tab.groups.push(own);
  };

  /* By name: the instructions that make and that read it. */
  const linkValues = () => {
    tab.makers = new Map();
    tab.readers = new Map();
    const add = (map, name, i) => (map.has(name) ? map.get(name).push(i) : map.set(name, [i]));
    for (const i of tab.instructions) {
      for (const v of i.makes) add(tab.makers, v.name, i);
      for (const v of i.reads) add(tab.readers, v.name, i);
    }
  };

  /* Several values may have one name, one after the other: what is read is the newest before, or,
   * where none is before, what the step before left. */
  const makerOf = (name, reader) => {
    const all = (tab.makers.get(name) || []).filter((i) => i !== reader);
    const before = all.filter((i) => i.number < reader.number);
    return before.length ? before[before.length - 1] : all[all.length - 1];
  };

  const readersOf = (name, maker) => {
    const next = (tab.makers.get(name) || []).find((i) => i.number > maker.number);
    return (tab.readers.get(name) || []).filter((i) => i.number > maker.number && (!next || i.number <= next.number));
  };

  const showCalls = (doc) => {
    const MOST = 600, calls = doc.timeline || [];
    T.fill(tab.calls, calls.slice(0, MOST).map((c) => {
      const action = (doc.segments.find((s) => s.name === c.segment) || {}).action;
      return T.el('button', { type: 'button', class: 'call kind-' + action, title: `segment ${c.segment}, micro-batch ${c.microbatch}`, onclick: () => tab.toSegment(c.segment) }, action === 'U' ? c.segment : `${c.segment}${c.microbatch}`);
    }), calls.length > MOST ? T.el('span', { class: 'soft' }, ` and ${T.grouped(calls.length - MOST)} more`) : null);
  };

  /* ---- the list ---- */

  tab.filter = () => {
    if (!tab.document) return;
    const words = tab.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hit = (i) => words.every((w) => i.text.includes(w));
    const rows = [];
    let num = 0;
    for (const own of tab.groups) {
      const groups = own.layers.map((g) => [g, words.length ? g.list.filter(hit) : g.list]).filter(([, list]) => list.length);
      if (!groups.length) continue;
      rows.push({ level: 1, own });
      for (const [group, list] of groups) {
        num += list.length;
        if (!own.open && !words.length) continue;
        rows.push({ level: 2, group, own, num: list.length });
        if (group.open || words.length) for (const i of list) rows.push({ level: 3, i });
      }
    }
    T.tell(tab.found, words.length ? `${T.grouped(num)} found` : '');
    tab.list.set(rows, tab.chosen);
  };

  tab.foldAll = (depth) => {
    for (const own of tab.groups) {
      own.open = depth > 1;
      for (const group of own.layers) group.open = depth > 2;
    }
    tab.filter();
  };

  tab.pick = (row, open) => {
    if (row.level === 3) return tab.choose(row.i);
    const what = row.level === 1 ? row.own : row.group;
    if (open === what.open) return undefined;
    what.open = open === undefined ? !what.open : open;
    return tab.filter();
  };

  tab.toSegment = (name) => {
    const own = tab.groups.find((g) => g.segment.name === name);
    if (own) tab.list.show((row) => row.own === own && row.level === 1);
  };

  tab.jump = (number) => {
    const i = tab.instructions[number];
    i.owner.open = i.group.open = true;
    if (!tab.search.value || !tab.search.value.toLowerCase().split(/\s+/).every((w) => i.text.includes(w))) tab.search.value = '';
    tab.chosen = i;
    tab.filter();
    tab.list.show((row) => row.i === i);
    tab.choose(i);
  };

  tab.choose = (i) => {
    tab.chosen = i;
    T.view.values.program.at = i.number;
    T.view.write();
    tab.list.mark(i);
    tab.tell(i);
  };

  tab.tellNothing = () => T.fill(tab.detail, T.el('h2', {}, 'Instruction'), T.el('p', { class: 'soft' }, 'Choose an instruction: arrow keys and Enter, or a click. / searches.'));

  const link = (i) => T.el('button', { type: 'button', class: 'plain', onclick: () => tab.jump(i.number) }, `${i.number} ${i.operator}`);
  const links = (list) => [list.slice(0, 8).map((i) => [link(i), ' ']), list.length > 8 ? `and ${list.length - 8} more` : ''].flat(2);

  const value = (v, title, list) => T.el('li', {}, T.el('b', {}, v.name), ' ', T.el('code', {}, `${v.dtype} ${v.shape}`),
    T.el('div', { class: 'soft' }, `${v.space}+${v.offset_bytes.toString(16)}, ${T.bytes(v.bytes)}`),
    T.el('div', {}, T.el('span', { class: 'soft' }, list.length ? title + ' ' : title.replace(/ by$/, '') + (title.startsWith('made') ? ' before the step' : ' by nothing in it')), links(list)));

  tab.tell = (i) => {
    const m = i.message;
    T.fill(tab.detail,
      T.el('h2', {}, `${i.number} ${i.operator}`),
      T.el('p', { class: 'soft' }, `segment ${i.owner.segment.name}, ${i.group.title}; ${T.count(i.flops)} FLOP, ${T.bytes(i.bytes)} moved`),
      m ? T.el('p', {}, `Travels in a message: ${m.operation}${m.group ? ` over ${m.group}` : ''}, ${T.bytes(m.bytes)}, instructions ${m.first_instruction} to ${m.first_instruction + m.instructions - 1}.`) : null,
      T.el('h3', {}, 'makes'), T.el('ul', { class: 'plainlist' }, i.makes.map((v) => value(v, 'read by', readersOf(v.name, i))), i.makes.length ? null : T.el('li', { class: 'soft' }, 'nothing')),
      T.el('h3', {}, 'reads'), T.el('ul', { class: 'plainlist' }, i.reads.map((v) => {
        const maker = makerOf(v.name, i);
        return value(v, 'made by', maker ? [maker] : []);
      }), i.reads.length ? null : T.el('li', { class: 'soft' }, 'nothing')));
  };

  tab.key = (event) => {
    if (event.key !== '/') return;
    event.preventDefault();
    tab.search.focus();
  };
}
