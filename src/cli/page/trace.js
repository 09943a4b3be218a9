/* The lanes of the last traced step: what each rank did when. */
'use strict';

T.trace = { doc: null, span: null, at: null, pointer: null };

/* What an operator is: its colour and the word for the legend. */
T.trace.kinds = [
  { word: 'products', colour: 'c0', of: /matmul|product|linear|grouped|experts/ },
  { word: 'attention', colour: 'c6', of: /attention/ },
  { word: 'messages', colour: 'c1', of: /all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|send|recv|exchange|gather|shift|message/ },
  { word: 'update', colour: 'c2', of: /adam|sgd|lion|muon|finish|sum_squares|narrow|accumulate|fill/ },
  { word: 'waiting', colour: 'wait', of: /^wait/ },
  { word: 'other arithmetic', colour: 'c5', of: /./ },
];

T.trace.kindOf = (op) => T.trace.kinds.find((kind) => kind.of.test(op)) || T.trace.kinds[5];

/* F, B and the like have colours of their own, as in drawings of pipelines. */
T.trace.actionColour = (name) => ({ F: 'c0', B: 'c2', I: 'c2', W: 'c4', U: 'c3' }[(name || '').charAt(0)] || 'c5');

T.trace.isAction = (lane) => /action|step/.test(lane.lane);

T.trace.layout = (doc) => {
  let y = 0, rank = null;
  const rows = [];
  for (const lane of doc.lanes) {
    if (lane.rank !== rank) y += rank === null ? 2 : 8;
    rank = lane.rank;
    const high = T.trace.isAction(lane) ? 16 : 14;
    rows.push({ lane, y, high });
    y += high + 2;
  }
  return { rows, height: y + 22 };
};

T.trace.left = 118;

T.trace.draw = (context, width, height) => {
  const { rows } = T.trace.rows, span = T.trace.span, left = T.trace.left;
  const scale = (width - left - 4) / (span.to - span.from);
  T.trace.px = (us) => left + (us - span.from) * scale;
  T.trace.axis(context, width, height);
  context.textBaseline = 'middle';
  for (const row of rows) T.trace.drawRow(context, row, width);
  T.trace.mark(context);
};

T.trace.axis = (context, width, height) => {
  const { span, px } = T.trace;
  context.strokeStyle = T.colour('grid');
  context.textAlign = 'center';
  for (const mark of T.ticks(span.from, span.to, width / 110)) {
    const x = Math.round(px(mark)) + 0.5;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - 18);
    context.stroke();
    context.fillStyle = T.colour('soft');
    context.fillText(mark >= 1000 || span.to > 5000 ? `${T.num(mark / 1000)} ms` : `${T.num(mark)} µs`, Math.min(x, width - 24), height - 6);
  }
  context.textAlign = 'left';
};

T.trace.drawRow = (context, row, width) => {
  const { lane, y, high } = row, { px, span } = T.trace, actions = T.trace.isAction(lane);
  context.fillStyle = T.colour('soft');
  context.fillText(`${lane.rank}`.padStart(2) + '  ' + lane.lane, 4, y + high / 2, T.trace.left - 10);
  let drawn = -1; /* places that were painted already: thousands of spans may share one */
  for (const s of lane.spans) {
    if (s[1] < span.from || s[0] > span.to) continue;
    const colour = actions ? T.trace.actionColour(s[6] || s[2]) : T.trace.kindOf(s[3]).colour;
    const from = Math.max(px(s[0]), T.trace.left), to = Math.min(px(s[1]), width - 4);
    if (to < drawn + 0.3) continue;
    drawn = to;
    context.fillStyle = T.colour(colour);
    context.fillRect(from, y, Math.max(0.7, to - from - (to - from > 3 ? 0.6 : 0)), high);
    if (to - from < 26) continue;
    context.fillStyle = T.colour(colour === 'wait' ? 'ink' : 'paper');
    context.save();
    context.beginPath();
    context.rect(from, y, to - from - 2, high);
    context.clip();
    context.fillText(actions && s[5] !== null && s[5] !== undefined && s[5] >= 0 ? `${s[2]}` : s[2], from + 3, y + high / 2 + 0.5);
    context.restore();
  }
};

T.trace.words = (lane, s) => {
  const parts = [`rank ${lane.rank}, ${lane.lane}`, s[3] && s[3] !== s[2] ? `${s[3]}: ${s[2]}` : s[2], `${T.num(s[1] - s[0])} µs`];
  if (T.known(s[5]) && s[5] >= 0) parts.push(`micro-batch ${s[5]}`);
  return parts.join(' · ');
};

T.trace.mark = (context) => {
  const { at, px, span } = T.trace;
  if (!at) return;
  const s = at.row.lane.spans[at.index];
  if (s[1] < span.from || s[0] > span.to) return;
  context.strokeStyle = T.colour('ink');
  context.lineWidth = 1.5;
  const from = Math.max(px(s[0]), T.trace.left);
  context.strokeRect(from, at.row.y, Math.max(2, px(s[1]) - from), at.row.high);
  context.lineWidth = 1;
  T.trace.tip.show(T.trace.pointer === null ? Math.max(from, T.trace.left) : T.trace.pointer, at.row.y + at.row.high + 4, T.trace.words(at.row.lane, s));
};

T.trace.find = (x, y) => {
  const row = T.trace.rows.rows.find((r) => y >= r.y && y < r.y + r.high + 2);
  if (!row || !T.trace.px) return null;
  const { span } = T.trace, us = span.from + ((x - T.trace.left) / (T.trace.canvas.width - T.trace.left - 4)) * (span.to - span.from);
  const near = (2 * (span.to - span.from)) / T.trace.canvas.width;
  const index = row.lane.spans.findIndex((s) => us >= s[0] - near && us <= s[1] + near);
  return index < 0 ? null : { row, index };
};

T.trace.press = (event) => {
  const { rows } = T.trace.rows, { at, span } = T.trace;
  const row = at ? rows.indexOf(at.row) : 0;
  let index = at ? at.index : -1, to = row;
  if (event.key === 'ArrowRight' || event.key === 'ArrowLeft')
    index = Math.min(Math.max(index + (event.key === 'ArrowRight' ? 1 : -1), 0), rows[row].lane.spans.length - 1);
  else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    to = Math.min(Math.max(row + (event.key === 'ArrowDown' ? 1 : -1), 0), rows.length - 1);
    const start = at ? at.row.lane.spans[at.index][0] : 0, spans = rows[to].lane.spans;
    index = Math.max(0, spans.findIndex((s) => s[1] >= start));
  } else return span.key(event, at ? at.row.lane.spans[at.index][0] : undefined);
  const s = rows[to].lane.spans[index];
  if (!s) return true;
  T.trace.at = { row: rows[to], index };
  T.trace.pointer = null;
  T.announce(T.trace.words(rows[to].lane, s));
  if (s[0] < span.from || s[1] > span.to) span.set(s[0] - (span.to - span.from) / 2, s[0] + (span.to - span.from) / 2);
  T.trace.canvas.redraw();
  return true;
};

T.trace.show = (doc) => {
  const any = doc && doc.lanes && doc.lanes.some((lane) => lane.spans.length > 0);
  T.id('trace').hidden = !any;
  T.trace.doc = doc;
  T.fill(T.id('trace-body'));
  if (!any) return;
  doc.lanes = doc.lanes.filter((lane) => lane.spans.length > 0);
  T.trace.rows = T.trace.layout(doc);
  const all = doc.lanes.flatMap((lane) => lane.spans);
  const high = all.reduce((most, s) => Math.max(most, s[1]), 0), low = all.reduce((least, s) => Math.min(least, s[0]), Infinity);
  T.trace.at = null;
  const host = T.el('div', { class: 'plot' });
  T.trace.span = T.span(low, high, () => T.trace.canvas.redraw());
  T.trace.canvas = T.canvas(host, { height: T.trace.rows.height,
    label: `what ${new Set(doc.lanes.map((lane) => lane.rank)).size} ranks did in step ${doc.step}, over ${T.num((high - low) / 1000)} ms. Arrow keys read the parts, + and - zoom.`,
    draw: T.trace.draw, key: T.trace.press,
    move(x, y) {
      T.trace.at = T.trace.find(x, y);
      T.trace.pointer = x;
      if (!T.trace.at) T.trace.tip.hide();
    },
    leave() {
      T.trace.at = null;
      T.trace.tip.hide();
      T.trace.canvas.redraw();
    },
    select: (a, b) => T.trace.span.set(T.trace.toUs(a), T.trace.toUs(b)),
    reset: () => T.trace.span.reset() });
  T.trace.tip = T.tip(host);
  T.trace.toUs = (x) => T.trace.span.from + ((Math.max(x, T.trace.left) - T.trace.left) / (T.trace.canvas.width - T.trace.left - 4)) * (T.trace.span.to - T.trace.span.from);
  T.fill(T.id('trace-body'), host, T.trace.key(doc));
  T.tell(T.id('trace-note'), `step ${T.grouped(doc.step)}${doc.cut ? ', a part of it: there is more than is drawn' : ''}`);
};

T.trace.key = (doc) => {
  const found = new Set(doc.lanes.filter((lane) => !T.trace.isAction(lane)).flatMap((lane) => lane.spans.map((s) => T.trace.kindOf(s[3]).word)));
  return T.el('ul', { class: 'legend' }, T.trace.kinds.filter((kind) => found.has(kind.word)).map((kind) => {
    const mark = T.el('i', { class: 'swatch', 'aria-hidden': 'true' });
    mark.style.background = `var(--${kind.colour})`;
    return T.el('li', {}, mark, kind.word);
  }));
};

T.trace.begin = () => {
  const act = { zoom: (f) => T.trace.span && T.trace.span.zoom(f), pan: (s) => T.trace.span && T.trace.span.pan(s), reset: () => T.trace.span && T.trace.span.reset() };
  T.id('trace-tools').append(...T.zoomTools('traced step', act));
  T.lazy('trace', async (id) => {
    const doc = id ? await T.data.get('/api/trace', { id }) : null;
    if (id === T.state.focus) T.trace.show(doc);
  });
};
