/* Placements: the mesh of ranks of a layout, and which piece of a value every rank has. */
'use strict';

T.view.mesh = { name: 'mesh', title: 'Placements', latest: T.view.latest(), latestPiece: T.view.latest() };

{
  const tab = T.view.mesh;
  T.view.tabs.push(tab);
  const MOST = 200; /* rows of a list that are there at once */
  const layoutKeys = ['recipe', 'dp', 'cp', 'tp', 'pp', 'ep', 'zero', 'sp', 'microbatches', 'schedule', 'batch'];
  T.view.layoutKeys = layoutKeys;

  const size = (key, title, least = 1, most = 64, help = null) => ({ key, title, kind: 'number', least, most, help });
  T.view.layoutFields = () => [
    { key: 'recipe', title: 'model', kind: 'select' },
    size('dp', 'dp', 1, 64, 'ranks that have different rows of the batch'),
    size('cp', 'cp', 1, 64, 'ranks that have different tokens of each row'),
    size('tp', 'tp', 1, 64, 'ranks that divide heads and widths'),
    size('pp', 'pp', 1, 64, 'stages of the pipeline'),
    size('ep', 'ep', 1, 64, 'ranks that have different experts, of those of dp x cp'),
    { key: 'zero', title: 'zero', kind: 'select', options: [['0', '0'], ['1', '1: moments'], ['2', '2: and gradients'], ['3', '3: and parameters']] },
    size('microbatches', 'micro-batches', 1, 256), size('batch', 'batch', 1, 4096, 'rows of a step, over all ranks'),
    { key: 'sp', title: 'sp', kind: 'check', help: 'between the blocks of tp, activations are divided along the sequence' },
  ];

  /* Models to choose from, in a select of recipes; the file of the command line comes first. */
  T.view.fillRecipes = (panel, doc) => {
    const own = doc.file ? doc.file.replace(/^.*\//, '') : 'the settings given';
    T.view.options(panel.querySelector('[data-key=recipe]'), [['', own], ...doc.recipes.map((r) => [r, r])]);
  };

  const change = (key, value) => {
    T.view.values.mesh[key] = value;
    if (key === 'recipe') T.view.values.mesh = { recipe: value };
    tab.load();
  };

  const choose = (value) => {
    T.view.values.mesh.value = value;
    tab.showList();
    tab.loadPiece();
  };

  tab.build = (panel) => {
    tab.note = T.el('p', { class: 'soft' });
    tab.filter = T.el('input', { type: 'search', placeholder: 'name contains', 'aria-label': 'values whose name contains', oninput: () => tab.showList() });
    tab.kind = T.el('select', { 'aria-label': 'kind of values', onchange: () => tab.showList() });
    tab.values = T.el('div', { class: 'values', role: 'listbox', 'aria-label': 'values', tabindex: 0, onkeydown: (event) => tab.listKey(event) });
    tab.title = T.el('h2', {});
    tab.told = T.el('p', { class: 'told', role: 'status', 'aria-live': 'polite' });
    tab.ranks = T.el('div', { class: 'mesh scroll', tabindex: 0, role: 'region', 'aria-label': 'the mesh of ranks' });
    tab.params = T.el('div', {});
    panel.append(
      T.el('div', { class: 'panel' }, T.view.fields('layout', T.view.layoutFields(), change), tab.note),
      T.el('div', { class: 'side' },
        T.el('div', { class: 'panel' }, T.el('h2', {}, 'Values'), T.el('div', { class: 'v-bar' }, tab.filter, tab.kind), tab.values),
        T.el('div', { class: 'panel' }, tab.title, tab.told, tab.ranks,
          T.el('p', { class: 'soft' }, 'A letter is a piece: ranks of one letter hold the same. H@tp: dim H is divided over tp. {P:tp}: every rank has a term, and the sum over tp is the value. In slices: what is left is one row of numbers, divided by ZeRO.'))),
      T.el('details', { class: 'panel' }, T.el('summary', {}, 'Parameters'), tab.params));
  };

  tab.show = () => tab.load();

  tab.load = () => {
    const values = T.view.values.mesh;
    T.view.write();
    const query = Object.fromEntries(layoutKeys.map((key) => [key, values[key]]));
    tab.latest(T.view.get('/api/view/mesh', query), (doc) => tab.take(doc));
  };

  tab.take = (doc) => {
    tab.document = doc;
    T.view.fillRecipes(tab.panel, doc);
    T.view.fill(tab.panel, { ...doc.layout, recipe: T.view.values.mesh.recipe || '', sp: doc.layout.sp });
    T.tell(tab.note, `${doc.model.kind}, ${doc.model.layers} layers, ${T.count(doc.model.parameters)} parameters; ${doc.ranks.length} rank${doc.ranks.length === 1 ? '' : 's'}: pp × dp × cp × tp, neighbours are those of tp`);
    const kinds = [...new Set(doc.values.map((v) => v.kind))];
    T.view.options(tab.kind, [['', 'all kinds'], ...kinds]);
    const wanted = T.view.values.mesh.value;
    if (!doc.values.some((v) => v.value === wanted)) {
      const first = doc.values.find((v) => v.placement.includes('{P')) || doc.values.find((v) => v.placement.includes('@')) || doc.values.find((v) => v.kind === 'parameter');
      T.view.values.mesh.value = first ? first.value : '';
    }
    tab.showList();
    tab.showParams();
    tab.loadPiece();
  };

  tab.matching = () => {
    const words = tab.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return tab.document.values.filter((v) => (!tab.kind.value || v.kind === tab.kind.value) && words.every((w) => (v.value + ' ' + v.placement).toLowerCase().includes(w)));
  };

  tab.showList = () => {
    const found = tab.matching(), chosen = T.view.values.mesh.value;
    const at = Math.max(0, found.findIndex((v) => v.value === chosen));
    const from = Math.max(0, Math.min(at - MOST / 2, found.length - MOST));
    T.fill(tab.values, found.slice(from, from + MOST).map((v) => T.el('div', {
      id: v.value === chosen ? 'value-now' : null, role: 'option', class: 'value', 'aria-selected': String(v.value === chosen), onclick: () => choose(v.value),
    }, T.el('span', { class: 'tag' }, v.kind), ' ', v.value, T.el('span', { class: 'soft place' }, v.placement))),
    found.length > MOST ? T.el('p', { class: 'soft' }, `${T.grouped(found.length)} values; write a part of the name to see others`) : found.length ? null : T.el('p', { class: 'soft' }, 'No value has such a name.'));
    const now = T.id('value-now');
    tab.values.setAttribute('aria-activedescendant', now ? 'value-now' : '');
    if (now) tab.values.scrollTop = Math.max(0, now.offsetTop - tab.values.clientHeight / 2);
  };

  tab.listKey = (event) => {
    const found = tab.matching(), at = found.findIndex((v) => v.value === T.view.values.mesh.value);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: found.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
    if (to === undefined || !found.length) return;
    event.preventDefault();
    choose(found[Math.max(0, Math.min(found.length - 1, to))].value);
  };

  tab.showParams = () => {
    const all = tab.document.parameters;
    T.fill(tab.params, T.table('parameters', [
      { title: 'name', cell: (p) => T.el('button', { type: 'button', class: 'plain', onclick: () => { choose(p.name); tab.title.scrollIntoView({ block: 'center' }); } }, p.name) },
      { title: 'shape', cell: (p) => p.shape },
      { title: 'elements', number: true, cell: (p) => T.grouped(p.elements) },
      { title: 'role', cell: (p) => p.role },
    ], all.slice(0, 500)), all.length > 500 ? T.el('p', { class: 'soft' }, `and ${all.length - 500} more`) : null);
  };

  tab.loadPiece = () => {
    const values = T.view.values.mesh;
    T.view.write();
    if (!values.value) return;
    const query = Object.fromEntries([...layoutKeys, 'value'].map((key) => [key, values[key]]));
    tab.latestPiece(T.view.get('/api/view/placement', query), (doc) => tab.showPieces(doc));
  };

  /* ---- pieces ---- */

  const letters = (n) => (n >= 26 ? letters(Math.floor(n / 26) - 1) : '') + String.fromCharCode(65 + (n % 26));

  /* Ranks that hold the same numbers have one letter; terms of a sum are different numbers. */
  const letterRanks = (doc) => {
    const seen = new Map();
    return doc.ranks.map((r) => {
      if (!r.begin || r.elements === 0) return null;
      const key = JSON.stringify([r.begin, r.size, r.first, doc.divided ? r.elements : 0, r.term]);
      if (!seen.has(key)) seen.set(key, seen.size);
      return seen.get(key);
    });
  };

  const range = (first, num, all) => (num === 0 ? 'none' : num === all ? `all ${all}` : num === 1 ? String(first) : `${first}–${first + num - 1}`);

  const words = (doc, r) => {
    const cut = doc.dims.map((d, i) => [d, r.begin[i], r.size[i]]).filter(([d, , n]) => n !== d.size);
    const parts = cut.map(([d, first, num]) => `${d.name} ${range(first, num, d.size)}`);
    if (doc.divided) parts.push(r.elements ? `numbers ${T.grouped(r.first)}–${T.grouped(r.first + r.elements - 1)}` : 'nothing');
    return parts.length ? parts.join(', ') : 'all of it';
  };

  /* The whole tensor as a rectangle: down is the first dim that is divided, right the last other. */
  const sketch = (doc, r, colour) => {
    const cut = doc.dims.map((d, i) => i).filter((i) => doc.ranks.some((x) => x.size && x.size[i] !== doc.dims[i].size));
    const down = cut.length ? cut[0] : 0, right = cut.length > 1 ? cut[1] : doc.dims.findIndex((d, i) => i !== down);
    const share = (i) => (i < 0 ? [0, 1] : [r.begin[i] / doc.dims[i].size, r.size[i] / doc.dims[i].size]);
    let [y, h] = share(down);
    const [x, w] = share(right);
    const box = { x: 1 + x * 58, y: 1 + y * 38, width: w * 58, height: h * 38 };
    const marks = [T.svg('rect', { x: 1, y: 1, width: 58, height: 38, class: 'whole' })];
    if (doc.divided) {
      marks.push(T.svg('rect', { ...box, class: 'outline' }));
      const local = r.size.reduce((a, b) => a * b, 1);
      box.y += (box.height * r.first) / Math.max(1, local);
      box.height *= r.elements / Math.max(1, local);
    }
    marks.push(T.svg('rect', { ...box, fill: colour, class: doc.terms > 1 ? 'piece term' : 'piece' }));
    return T.svg('svg', { viewBox: '0 0 60 40', class: 'sketch', 'aria-hidden': 'true' }, ...marks);
  };

  const card = (doc, r, letter) => {
    const at = tab.document.ranks[r.rank];
    const where = tab.document.axes.filter((a) => a.size > 1).map((a) => `${a.name} ${at[a.name]}`).join(' · ');
    const head = T.el('p', { class: 'rank' }, T.el('b', {}, `rank ${r.rank}`), ' ', T.el('span', { class: 'soft' }, where));
    if (letter === null) return T.el('div', { class: 'card none', tabindex: 0 }, head, T.el('p', { class: 'soft' }, 'holds nothing of it'));
    const colour = T.colour('c' + (letter % 8));
    const light = (on) => tab.ranks.querySelectorAll('.card').forEach((c) => c.classList.toggle('same', on && c.dataset.letter === String(letter)));
    return T.el('div', {
      class: 'card', tabindex: 0, 'data-letter': letter, onmouseenter: () => light(true), onmouseleave: () => light(false), onfocus: () => light(true), onblur: () => light(false),
    }, head, T.el('div', { class: 'has' }, sketch(doc, r, colour), T.el('b', { class: 'letter', style: { color: colour } }, letters(letter))),
    T.el('p', {}, words(doc, r)),
    T.el('p', { class: 'soft' }, `${doc.terms > 1 ? `term ${r.term + 1} of ${doc.terms} · ` : ''}${T.bytes(r.bytes)}`));
  };

  tab.showPieces = (doc) => {
    const found = letterRanks(doc), held = found.filter((l) => l !== null), kinds = new Set(held).size;
    const axes = Object.fromEntries(tab.document.axes.map((a) => [a.name, a.size]));
    T.fill(tab.title, `${doc.value} `, T.el('code', {}, `${doc.placement} ${doc.dtype}`));
    T.tell(tab.told, `${T.grouped(doc.elements)} numbers; ${kinds} different piece${kinds === 1 ? '' : 's'} on ${held.length} rank${held.length === 1 ? '' : 's'}` +
      (kinds && held.length > kinds ? `, ${held.length % kinds ? '' : `each on ${held.length / kinds}`}` : '') +
      (doc.terms > 1 ? `; a sum of ${doc.terms} terms is not completed yet` : '') +
      (held.length < doc.ranks.length ? `; ${doc.ranks.length - held.length} ranks have none` : '') + '.');
    const columns = axes.tp * axes.cp;
    T.fill(tab.ranks, Array.from({ length: axes.pp }, (_, pp) => T.el('div', { class: 'stage' },
      axes.pp > 1 ? T.el('p', { class: 'soft' }, `stage ${pp} of the pipeline`) : null,
      Array.from({ length: axes.dp }, (__, dp) => T.el('div', { class: 'replica', style: { gridTemplateColumns: `repeat(${Math.min(columns, 8)}, minmax(118px, 260px))` } },
        doc.ranks.filter((r) => tab.document.ranks[r.rank].pp === pp && tab.document.ranks[r.rank].dp === dp).map((r) => card(doc, r, found[r.rank])))))));
  };

  tab.key = () => {};
  T.on('theme', () => { if (tab.document && T.view.now === tab) tab.loadPiece(); });
}
