/* The plan's memory over the step: what lies where, from which instruction to which. */
'use strict';

T.map = { doc: null, at: null, pointer: null, space: null };

T.map.kinds = [
  { word: 'weights', colour: 'c0', of: /^(param|copy|gathered)/ },
  { word: 'gradients', colour: 'c1', of: /^grad/ },
  { word: 'moments', colour: 'c2', of: /^optim/ },
  { word: 'activations', colour: 'c6', of: /^work/ },
  { word: 'activations kept from one call to another', colour: 'c3', of: /^(frame|cache)/ },
  { word: 'inputs and statistics', colour: 'c5', of: /./ },
];

T.map.kindOf = (box) => T.map.kinds.find((kind) => kind.of.test(box.space)) || T.map.kinds[5];

/* Spaces lie above each other: an address of the map is a place in all of them. */
T.map.arrange = (doc) => {
  const spaces = new Map(doc.spaces.filter((space) => space.bytes > 0).map((space) => [space.name, space]));
  return { spaces, bytes: Math.max(1, ...[...spaces.values()].map((space) => space.base + space.bytes)) };
};

T.map.left = 72;

T.map.frame = (width, height) => {
  const { span, all } = T.map, left = T.map.left, bottom = height - 20;
  const only = T.map.space ? all.spaces.get(T.map.space) : null;
  const low = only ? only.base : 0, high = only ? only.base + only.bytes : all.bytes;
  return { left, bottom, right: width - 6, low, high,
    px: (i) => left + ((i - span.from) / (span.to - span.from)) * (width - 6 - left),
    py: (address) => bottom - ((address - low) / (high - low || 1)) * (bottom - 6) };
};

T.map.box = (frame, box) => {
  const base = T.map.all.spaces.get(box.space).base + box.offset;
  const x = Math.max(frame.px(box.first), frame.left), y = frame.py(base + box.bytes);
  return { x, y, width: Math.min(frame.px(box.last + 1), frame.right) - x, height: frame.py(base) - y };
};

T.map.draw = (context, width, height) => {
  const frame = T.map.frame(width, height);
  T.map.axes(context, frame, width, height);
  context.save();
  context.beginPath();
  context.rect(frame.left, 4, frame.right - frame.left, frame.bottom - 3);
  context.clip();
  for (const box of T.map.doc.rows) {
    if (T.map.space && box.space !== T.map.space) continue;
    const r = T.map.box(frame, box);
    if (r.width <= 0 || r.height < 0.25) continue;
    context.fillStyle = T.colour(T.map.kindOf(box).colour);
    context.globalAlpha = 0.82;
    context.fillRect(r.x, r.y, Math.max(0.6, r.width - (r.width > 3 ? 0.5 : 0)), Math.max(0.5, r.height - (r.height > 3 ? 0.5 : 0)));
    context.globalAlpha = 1;
    if (r.height < 12 || r.width < 44) continue;
    context.fillStyle = T.colour('paper');
    context.textBaseline = 'middle';
    const text = context.measureText(box.name).width > r.width - 8 ? box.name.slice(0, Math.max(3, Math.floor(r.width / 6.4) - 1)) + '…' : box.name;
    context.fillText(text, r.x + 4, r.y + r.height / 2);
  }
  T.map.mark(context, frame);
  context.restore();
};

T.map.axes = (context, frame, width, height) => {
  context.fillStyle = T.colour('soft');
  context.strokeStyle = T.colour('grid');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const power = 2 ** Math.floor(Math.log2(Math.max(1, (frame.high - frame.low) / 6)));
  for (let bytes = 0; bytes <= frame.high - frame.low; bytes += power * ((frame.high - frame.low) / power > 9 ? 2 : 1)) {
    const y = Math.round(frame.py(frame.low + bytes)) + 0.5;
    context.fillText(T.bytes(bytes).replace(' ', ' '), frame.left - 6, Math.max(8, y));
    context.beginPath();
    context.moveTo(frame.left, y);
    context.lineTo(frame.right, y);
    context.stroke();
  }
  context.textAlign = 'center';
  for (const mark of T.ticks(T.map.span.from, T.map.span.to, width / 100))
    if (Number.isInteger(mark)) context.fillText(T.grouped(mark), Math.min(frame.px(mark), width - 20), height - 7);
  context.textAlign = 'left';
  context.fillText('instruction', 0, height - 7);
};

T.map.words = (box) => `${box.name}: ${T.bytes(box.bytes)} in ${box.space} at ${T.bytes(box.offset)}, instructions ${T.grouped(box.first)} to ${T.grouped(box.last)}`;

T.map.mark = (context, frame) => {
  const { at } = T.map;
  if (!at) return;
  const r = T.map.box(frame, at);
  context.strokeStyle = T.colour('ink');
  context.lineWidth = 2;
  context.strokeRect(r.x, r.y, Math.max(2, r.width), Math.max(2, r.height));
  context.lineWidth = 1;
  T.map.tip.show(T.map.pointer === null ? Math.max(r.x, frame.left) : T.map.pointer, Math.min(r.y + r.height + 4, frame.bottom - 40), T.el('b', {}, at.name),
    T.el('div', {}, `${T.bytes(at.bytes)} · ${at.space}`), T.el('div', { class: 'soft' }, `instructions ${T.grouped(at.first)} – ${T.grouped(at.last)}`));
};

T.map.find = (x, y) => {
  const frame = T.map.frame(T.map.canvas.width, T.map.canvas.height);
  let best = null;
  for (const box of T.map.doc.rows) {
    if (T.map.space && box.space !== T.map.space) continue;
    const r = T.map.box(frame, box);
    if (x >= r.x && x <= r.x + r.width && y >= r.y - 1 && y <= r.y + r.height + 1 && (!best || box.bytes < best.bytes)) best = box;
  }
  return best;
};

/* Arrow keys go through the boxes, the largest first, as the list has them. */
T.map.press = (event) => {
  const boxes = T.map.doc.rows.filter((box) => !T.map.space || box.space === T.map.space);
  const now = boxes.indexOf(T.map.at);
  const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9 };
  if (!(event.key in moves)) return T.map.span.key(event);
  T.map.at = boxes[Math.min(Math.max(now + moves[event.key], 0), boxes.length - 1)];
  T.map.pointer = null;
  T.announce(T.map.words(T.map.at));
  T.map.canvas.redraw();
  return true;
};

T.map.show = (doc) => {
  const any = doc && doc.rows && doc.rows.length > 0;
  T.id('map').hidden = !doc || (!any && !doc.why);
  T.fill(T.id('map-body'));
  T.map.doc = doc;
  T.map.at = null;
  T.id('map-tools').hidden = !any;
  T.tell(T.id('map-note'), '');
  if (!any && doc) T.fill(T.id('map-body'), T.el('p', { class: 'soft' }, doc.why));
  if (!any) return;
  T.map.all = T.map.arrange(doc);
  if (T.map.space && !T.map.all.spaces.has(T.map.space)) T.map.space = null;
  const host = T.el('div', { class: 'plot' });
  T.map.span = T.span(0, Math.max(1, doc.instructions || 1), () => T.map.canvas.redraw());
  T.map.canvas = T.canvas(host, { height: 340,
    label: `memory of the step: ${T.bytes(doc.bytes)} in ${doc.rows.length} parts over ${doc.instructions} instructions. Arrow keys read the parts, the largest first; + and - zoom.`,
    draw: T.map.draw, key: T.map.press,
    move(x, y) {
      T.map.at = T.map.find(x, y);
      T.map.pointer = x;
      if (!T.map.at) T.map.tip.hide();
    },
    leave() {
      T.map.at = null;
      T.map.tip.hide();
      T.map.canvas.redraw();
    },
    select: (a, b) => T.map.span.set(T.map.toInstruction(a), T.map.toInstruction(b)),
    reset: () => T.map.span.reset() });
  T.map.tip = T.tip(host);
  T.map.toInstruction = (x) => T.map.span.from + ((x - T.map.left) / (T.map.canvas.width - 6 - T.map.left)) * (T.map.span.to - T.map.span.from);
  T.fill(T.id('map-body'), host, T.map.key());
  T.map.choices();
  T.tell(T.id('map-note'), `${T.bytes(doc.bytes)} · ${T.grouped(doc.instructions)} instructions${doc.cut ? ` · the ${T.grouped(doc.rows.length)} largest parts` : ''}`);
};

T.map.key = () => {
  const found = new Set(T.map.doc.rows.map((box) => T.map.kindOf(box).word));
  return T.el('ul', { class: 'legend' }, T.map.kinds.filter((kind) => found.has(kind.word)).map((kind) => {
    const mark = T.el('i', { class: 'swatch', 'aria-hidden': 'true' });
    mark.style.background = `var(--${kind.colour})`;
    return T.el('li', {}, mark, kind.word);
  }));
};

T.map.choices = () => {
  const select = T.id('map-space');
  T.fill(select, T.el('option', { value: '' }, 'all spaces'), [...T.map.all.spaces.values()].map((space) =>
    T.el('option', { value: space.name, selected: space.name === T.map.space }, `${space.name}, ${T.bytes(space.bytes)}`)));
};

T.map.begin = () => {
  const act = { zoom: (f) => T.map.span && T.map.span.zoom(f), pan: (s) => T.map.span && T.map.span.pan(s), reset: () => T.map.span && T.map.span.reset() };
  T.id('map-tools').append(T.el('select', { id: 'map-space', 'aria-label': 'space of memory', onchange: (event) => {
    T.map.space = event.target.value || null;
    T.map.at = null;
    T.map.canvas.redraw();
  } }), ...T.zoomTools('memory', act));
  T.lazy('map', async (id) => {
    const doc = id ? await T.data.get('/api/memory', { id, rank: 0 }) : null;
    if (id === T.state.focus) T.map.show(doc);
  });
};
