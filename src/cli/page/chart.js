/* One chart: a number of the selected runs over steps, tokens or hours. All charts share the x axis
 * and the cursor on it. */
'use strict';

T.cursor = { x: null, chart: null };

T.setCursor = (x, chart) => {
  T.cursor = { x, chart };
  T.emit('cursor');
};

T.axisTitle = { step: 'steps', tokens: 'tokens', hours: 'hours' };

/* key: {key, title, unit}. */
T.Chart = class {
  constructor(key) {
    this.key = key;
    this.log = T.kept('log.' + key.key) === '1';
    this.readout = T.el('p', { class: 'readout' });
    this.host = T.el('div', { class: 'plot' });
    this.note = T.el('p', { class: 'note soft' });
    this.element = T.el('article', { class: 'panel chart', 'aria-label': key.title },
      T.el('div', { class: 'head' },
        T.el('h3', { title: key.help }, key.title), key.unit ? T.el('span', { class: 'soft unit' }, key.unit) : null,
        T.el('span', { class: 'grow' }), this.logButton(), this.tableButton(), this.wideButton()),
      this.readout, this.host, this.note);
    this.canvas = T.canvas(this.host, {
      height: 190,
      label: key.title,
      draw: (context, width, height) => this.draw(context, width, height),
      move: (x) => T.setCursor(this.toX(x), this),
      leave: () => T.setCursor(null, null),
      select: (a, b) => T.zoomTo(this.toX(a), this.toX(b)),
      reset: () => T.zoomTo(null, null),
      key: (event) => this.press(event),
    });
    this.tip = T.tip(this.host);
  }

  /* One that is not on the screen is not drawn, but its words are right. */
  redraw() {
    this.canvas.redraw();
    if (!this.canvas.seen) this.describe(this.series());
  }

  button(text, label, pressed, act) {
    const button = T.el('button', { type: 'button', class: 'small', 'aria-pressed': String(pressed), 'aria-label': `${label}: ${this.key.title}`, title: label }, text);
    button.addEventListener('click', () => button.setAttribute('aria-pressed', String(act())));
    return button;
  }

  logButton() {
    return this.button('log', 'logarithmic scale', this.log, () => {
      this.log = !this.log;
      T.keep('log.' + this.key.key, this.log ? '1' : '0');
      this.redraw();
      return this.log;
    });
  }

  wideButton() {
    return this.button('⤢', 'larger', false, () => {
      const wide = this.element.classList.toggle('wide');
      this.canvas.setHeight(wide ? 380 : 190);
      return wide;
    });
  }

  tableButton() {
    return this.button('table', 'numbers as a table', false, () => {
      const shown = this.table;
      if (shown) shown.remove();
      this.table = shown ? null : this.makeTable();
      if (this.table) this.element.append(this.table);
      return Boolean(this.table);
    });
  }

  series() {
    return T.state.selected.map((id, at) => ({ id, at, curve: T.store.of(id, this.key.key) }))
      .filter((s) => s.curve && s.curve.points.length > 0 && s.curve.x === T.state.x);
  }

  /* Twelve rows, evenly over what is shown. */
  makeTable() {
    const series = this.series();
    const longest = series.reduce((best, s) => (best && best.curve.points.length >= s.curve.points.length ? best : s), null);
    if (!longest) return T.el('p', { class: 'soft' }, 'There are no numbers yet.');
    const points = longest.curve.points, num = Math.min(12, points.length);
    const rows = Array.from({ length: num }, (_, i) => points[Math.round((i * (points.length - 1)) / Math.max(1, num - 1))][0]);
    return T.table(`${this.key.title} of ${series.length} runs`, [
      { title: T.axisTitle[T.state.x], number: true, cell: (x) => T.xText(x) },
      ...series.map((s) => ({ title: T.nameOf(s.id), number: true, cell: (x) => T.num(this.valueAt(s, x)) })),
    ], rows);
  }

  nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= x) low = middle;
      else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
  }

  valueAt(s, x) {
    const points = s.curve.points;
    const gap = points.length > 1 ? (points[points.length - 1][0] - points[0][0]) / (points.length - 1) : 0;
    if (x > points[points.length - 1][0] + gap || x < points[0][0] - gap) return null;
    const at = this.nearest(points, x);
    return s.means && s.means.length === points.length ? s.means[at] : points[at][2];
  }

  /* Lines in a mean: as many as there are in so many steps, since held-out losses are rare. What is
   * set and not measured is shown as it is. */
  window(s) {
    if (T.curves.exact.includes(this.key.key)) return 1;
    const all = T.store.of(s.id, 'loss'), lines = (curve) => curve.points.reduce((sum, p) => sum + p[4], 0);
    const most = all && T.state.smooth > 1 ? lines(all) : 0;
    return most > 0 ? T.state.smooth * Math.min(1, lines(s.curve) / most) : T.state.smooth;
  }

  ranges(series) {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (const s of series) {
      const points = s.curve.points;
      s.means = T.store.smooth(points, this.window(s));
      x0 = Math.min(x0, points[0][0]);
      x1 = Math.max(x1, points[points.length - 1][0]);
      for (let i = 0; i < points.length; i++) {
        if (T.state.from !== null && (points[i][0] < T.state.from || points[i][0] > T.state.to)) continue;
        for (const y of [s.means[i], points[i][2]]) {
          if (!T.known(y) || (this.log && y <= 0)) continue;
          y0 = Math.min(y0, y);
          y1 = Math.max(y1, y);
        }
      }
    }
    if (T.state.band) [y0, y1] = this.withBands(series, y0, y1);
    const shown = T.state.from !== null ? [T.state.from, T.state.to] : T.xRange();
    if (shown) [x0, x1] = shown; /* the same for all charts: their cursors stand above each other */
    return this.roomFor(x0, x1, y0, y1);
  }

  /* Room for most of the bands: single spikes do not make everything else flat. */
  withBands(series, low, high) {
    for (const s of series) {
      const { from, to } = T.state, seen = s.curve.points.filter((p) => T.known(p[1]) && T.known(p[3]) &&
        (!this.log || p[1] > 0) && (from === null || (p[0] >= from && p[0] <= to)));
      if (!seen.length) continue;
      const at = (column, share) => seen.map((p) => p[column]).sort((a, b) => a - b)[Math.floor(share * (seen.length - 1))];
      low = Math.min(low, at(1, 0.03));
      high = Math.max(high, at(3, 0.97));
    }
    return [low, high];
  }

  roomFor(x0, x1, y0, y1) {
    if (!(x1 > x0)) [x0, x1] = [x0 - 0.5, x0 + 0.5];
    if (y1 - y0 < 1e-9 * Math.abs(y1)) y0 = y1; /* means of equal numbers differ in their last digits */
    if (!(y1 >= y0)) [y0, y1] = [this.log ? 1 : 0, this.log ? 10 : 1];
    if (this.log) {
      const room = y1 > y0 ? (y1 / y0) ** 0.05 : 1.5;
      return { x0, x1, y0: y0 / room, y1: y1 * room };
    }
    const room = y1 > y0 ? 0.06 * (y1 - y0) : Math.abs(y0) * 0.1 || 0.5;
    return { x0, x1, y0: y0 >= 0 && y0 < room ? 0 : y0 - room, y1: y1 + room };
  }

  /* Between numbers and places on the canvas, as the last drawing had them. */
  px(x) {
    const { x0, x1, left, right } = this.frame;
    return left + ((x - x0) / (x1 - x0)) * (right - left);
  }

  py(y) {
    const { y0, y1, top, bottom } = this.frame;
    const share = this.log ? Math.log(y / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0);
    return bottom - share * (bottom - top);
  }

  toX(px) {
    if (!this.frame) return null;
    const { x0, x1, left, right } = this.frame;
    return x0 + ((Math.min(Math.max(px, left), right) - left) / (right - left)) * (x1 - x0);
  }

  draw(context, width, height) {
    const series = this.series();
    if (series.length === 0) {
      this.frame = null;
      context.fillStyle = T.colour('soft');
      context.textAlign = 'center';
      context.fillText('no numbers yet', width / 2, height / 2);
      this.describe(series);
      return;
    }
    const ranges = this.ranges(series);
    const marks = this.log ? T.logTicks(ranges.y0, ranges.y1) : T.ticks(ranges.y0, ranges.y1, height / 45);
    const left = 10 + Math.max(...marks.map((m) => context.measureText(T.num(m)).width));
    this.frame = { ...ranges, left, right: width - 8, top: 6, bottom: height - 20 };
    this.drawAxes(context, marks, width);
    context.save();
    context.beginPath();
    context.rect(left, 0, this.frame.right - left + 1, this.frame.bottom + 1);
    context.clip();
    for (const s of series) this.drawRun(context, s);
    context.restore();
    this.drawCursor(context, series);
    this.describe(series);
  }

  drawAxes(context, marks, width) {
    const f = this.frame;
    context.lineWidth = 1;
    context.strokeStyle = T.colour('grid');
    context.fillStyle = T.colour('soft');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    let free = Infinity;
    for (const mark of marks) {
      const y = Math.round(this.py(mark)) + 0.5;
      context.beginPath();
      context.moveTo(f.left, y);
      context.lineTo(f.right, y);
      context.stroke();
      if (free - y < 13) continue; /* marks of a logarithmic axis lie close */
      context.fillText(T.num(mark), f.left - 5, y);
      free = y;
    }
    context.textBaseline = 'alphabetic';
    context.textAlign = 'center';
    for (const mark of T.ticks(f.x0, f.x1, width / 90)) {
      const text = T.state.x === 'hours' ? T.num(mark) : T.count(mark), half = context.measureText(text).width / 2;
      const x = this.px(mark);
      if (mark < 0 || x < f.left) continue;
      context.fillRect(Math.round(x), f.bottom, 1, 4);
      context.fillText(text, Math.min(x, f.right + 7 - half), f.bottom + 15);
    }
  }

  drawRun(context, s) {
    const points = s.curve.points, colour = T.runColour(s.at);
    const sparse = points.length < (this.frame.right - this.frame.left) / 12;
    if (T.state.band) this.drawBand(context, points, colour);
    context.strokeStyle = colour;
    context.lineJoin = 'round';
    if (this.window(s) > 1) {
      context.globalAlpha = 0.3;
      context.lineWidth = 1;
      this.line(context, points, points.map((p) => p[2]));
      context.globalAlpha = 1;
    }
    context.lineWidth = 1.6;
    context.setLineDash(T.runDash(s.at));
    this.line(context, points, s.means);
    context.setLineDash([]);
    if (!sparse) return;
    context.fillStyle = colour;
    for (let i = 0; i < points.length; i++)
      if (T.known(s.means[i])) context.fillRect(this.px(points[i][0]) - 2, this.py(s.means[i]) - 2, 4, 4);
  }

  line(context, points, values) {
    let pen = false;
    context.beginPath();
    for (let i = 0; i < points.length; i++) {
      const y = values[i];
      const drawn = T.known(y) && !(this.log && y <= 0);
      if (drawn && pen) context.lineTo(this.px(points[i][0]), this.py(y));
      else if (drawn) context.moveTo(this.px(points[i][0]), this.py(y));
      pen = drawn;
    }
    context.stroke();
  }

  drawBand(context, points, colour) {
    const low = (p) => this.py(this.log ? Math.max(p[1], this.frame.y0) : p[1]);
    const seen = points.filter((p) => T.known(p[1]) && T.known(p[3]) && !(this.log && p[3] <= 0));
    if (!seen.some((p) => p[3] > p[1])) return;
    context.beginPath();
    seen.forEach((p, i) => (i ? context.lineTo(this.px(p[0]), this.py(p[3])) : context.moveTo(this.px(p[0]), this.py(p[3]))));
    for (let i = seen.length - 1; i >= 0; i--) context.lineTo(this.px(seen[i][0]), low(seen[i]));
    context.closePath();
    context.globalAlpha = 0.16 / Math.max(1, T.state.selected.length / 3);
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }

  drawCursor(context, series) {
    const x = T.cursor.x, f = this.frame;
    if (x === null || x < f.x0 || x > f.x1) {
      this.tip.hide();
      return;
    }
    const px = Math.round(this.px(x)) + 0.5;
    context.strokeStyle = T.colour('soft');
    context.beginPath();
    context.moveTo(px, f.top);
    context.lineTo(px, f.bottom);
    context.stroke();
    const rows = series.map((s) => ({ s, value: this.valueAt(s, x) }));
    for (const { s, value } of rows) {
      if (!T.known(value) || (this.log && value <= 0)) continue;
      context.fillStyle = T.runColour(s.at);
      context.beginPath();
      context.arc(px, this.py(value), 3.5, 0, 7);
      context.fill();
    }
    if (T.cursor.chart !== this) {
      this.tip.hide();
      return;
    }
    this.tip.show(px, 4, T.el('div', { class: 'soft' }, `${T.xText(x)} ${T.axisTitle[T.state.x]}`),
      rows.map(({ s, value }) => T.el('div', {}, T.swatch(s.at), `${T.nameOf(s.id)} `, T.el('b', {}, T.num(value)))));
  }

  /* The numbers beside the title, and the same in words for those who do not see the chart. */
  describe(series) {
    const last = series.map((s) => ({ s, p: s.curve.points[s.curve.points.length - 1] }));
    const seen = last.map(({ s, p }) => `${s.at}:${p[0]}:${T.num(p[2])}`).join(' ') + T.state.x;
    if (seen !== this.seen) {
      this.seen = seen;
      T.fill(this.readout, last.slice(0, 6).map(({ s, p }) => T.el('span', {}, T.swatch(s.at), T.num(p[2]))));
      const words = last.map(({ s, p }) => `${T.nameOf(s.id)} ${T.num(p[2])} at ${T.xText(p[0])}`).join('; ');
      this.canvas.label(`${this.key.title} over ${T.axisTitle[T.state.x]}. ${words || 'No numbers yet'}. Arrow keys read values, + and - zoom.`);
    }
    const missing = series.reduce((sum, s) => sum + s.curve.missing, 0);
    T.tell(this.note, missing ? `${T.grouped(missing)} steps have no finite number` : '');
  }

  press(event) {
    const series = this.series();
    if (!this.frame || series.length === 0) return false;
    const points = series[0].curve.points, now = T.cursor.x === null ? points.length - 1 : this.nearest(points, T.cursor.x);
    const moves = { ArrowLeft: event.shiftKey ? -10 : -1, ArrowRight: event.shiftKey ? 10 : 1, Home: -1e9, End: 1e9 };
    if (event.key in moves) {
      const to = Math.min(Math.max(now + (T.cursor.x === null ? 0 : moves[event.key]), 0), points.length - 1);
      T.setCursor(points[to][0], this);
      T.announce(`${T.xText(points[to][0])} ${T.axisTitle[T.state.x]}: ` +
        series.map((s) => `${T.nameOf(s.id)} ${T.num(this.valueAt(s, points[to][0]))}`).join(', '));
      return true;
    }
    if (event.key === '+' || event.key === '=') T.zoomBy(0.5);
    else if (event.key === '-') T.zoomBy(2);
    else if (event.key === '0' || event.key === 'Escape') T.zoomTo(null, null);
    else return false;
    return true;
  }
};

T.xText = (x) => (T.state.x === 'hours' ? T.num(x) : T.grouped(x));

T.swatch = (at) => {
  const mark = T.el('i', { class: 'swatch' + (at >= 8 ? ' dashed' : ''), 'aria-hidden': 'true' });
  mark.style.backgroundColor = `var(--c${at % 8})`;
  return mark;
};
