/* A round on a circle of ranks, the pieces of every rank, and the rounds over time. */
'use strict';

{
  const tab = T.view.collective;
  const draw = (tab.draw = {});

  const place = (r, num, radius) => {
    const angle = (2 * Math.PI * r) / num - Math.PI / 2;
    return [150 + radius * Math.cos(angle), 150 + radius * Math.sin(angle)];
  };

  /* A curve from one rank to another that bends to the middle of the circle, and a little to its
   * left, so that both directions are seen. */
  const arrow = (from, to, num, adds, width) => {
    const dot = num > 32 ? 6 : num > 16 ? 9 : 13;
    const [x, y] = place(from, num, 122), [u, v] = place(to, num, 122);
    const length = Math.hypot(u - x, v - y) || 1, side = Math.min(14, length * 0.1);
    const mx = (x + u) / 2, my = (y + v) / 2, inward = (0.35 * length) / 244;
    const cx = mx + (150 - mx) * inward + ((v - y) / length) * side, cy = my + (150 - my) * inward - ((u - x) / length) * side;
    const cut = (ax, ay) => {
      const d = Math.hypot(cx - ax, cy - ay) || 1;
      return [ax + ((cx - ax) / d) * dot, ay + ((cy - ay) / d) * dot];
    };
    const [sx, sy] = cut(x, y), [ex, ey] = cut(u, v);
    const path = `M${sx.toFixed(1)} ${sy.toFixed(1)} Q${cx.toFixed(1)} ${cy.toFixed(1)} ${ex.toFixed(1)} ${ey.toFixed(1)}`;
    return T.svg('path', { d: path, class: adds ? 'arrow adds' : 'arrow', 'stroke-width': adds ? 1.6 * width : width, 'marker-end': adds ? 'url(#head-adds)' : 'url(#head)' });
  };

  const head = (id, name) => T.svg('marker', { id, viewBox: '0 0 8 8', refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: 'userSpaceOnUse', orient: 'auto' },
    T.svg('path', { d: 'M0 0 L8 4 L0 8 z', class: name }));

  draw.circle = (element, round) => {
    const num = tab.document.num_ranks, dot = num > 32 ? 6 : num > 16 ? 9 : 13;
    const pairs = new Map();
    for (const t of round ? round.transfers : []) pairs.set(`${t[0]} ${t[1]} ${t[4]}`, [t[0], t[1], t[4]]);
    const svg = T.svg('svg', { viewBox: '0 0 300 300', role: 'img', 'aria-label': round ? `${pairs.size} messages between ${num} ranks` : `${num} ranks` },
      T.svg('defs', {}, head('head', 'headc'), head('head-adds', 'headc adds')));
    for (const [from, to, adds] of pairs.values()) svg.append(arrow(from, to, num, adds, pairs.size > 200 ? 0.7 : 1.6));
    for (let r = 0; r < num; r++) {
      const [x, y] = place(r, num, 122);
      svg.append(T.svg('circle', { cx: x, cy: y, r: dot, class: 'dot' }));
      const text = T.svg('text', { x, y: y + (num > 32 ? 2.6 : 4), class: 'dot-name', 'font-size': num > 32 ? 7.5 : num > 16 ? 9.5 : 12 });
      text.textContent = r;
      svg.append(text);
    }
    T.fill(element, svg, T.el('p', { class: 'soft' }, tab.document.sums ? 'orange, thick: added to what is there; blue, thin: takes its place' : 'arrows: from who gives to who gets'));
  };

  /* ---- pieces ---- */

  const LEFT = 34;
  const row = () => Math.max(9, Math.min(26, 560 / tab.document.num_ranks));
  draw.height = () => (tab.document ? 22 + row() * tab.document.num_ranks : 60);

  const touched = () => {
    const at = tab.stepper.at, given = new Map();
    const transfers = at > 0 ? tab.document.rounds[at - 1].transfers : [];
    for (const [, to, first, num, adds] of transfers)
      for (let p = first; p < first + num; p++) given.set(to * tab.document.pieces + p, adds);
    return given;
  };

  draw.pieces = (context, width) => {
    const doc = tab.document;
    if (!doc || !tab.state) return;
    const h = row(), n = Math.max(1, doc.pieces), w = (width - LEFT - 6) / n, given = touched();
    const base = T.colour('line'), full = T.colour('good') || T.colour('c2'), part = T.colour('c0');
    context.textBaseline = 'middle';
    for (let r = 0; r < doc.num_ranks; r++) {
      context.fillStyle = T.colour('soft');
      context.font = `${Math.min(12, h - 1)}px system-ui, sans-serif`;
      context.textAlign = 'right';
      context.fillText(String(r), LEFT - 6, 20 + (r + 0.5) * h);
      for (let p = 0; p < doc.pieces; p++) {
        const share = tab.state.share(r, p), x = LEFT + p * w, y = 20 + r * h;
        const colour = share === 0 ? T.view.mix(base, T.colour('panel'), 0.6) : share === 1 ? full : T.view.mix(part, T.colour('panel'), 0.75 * (1 - share));
        context.fillStyle = colour;
        context.fillRect(x, y + 1, Math.max(0.4, w - (w > 4 ? 1.5 : 0)), h - 2);
        if (given.has(r * doc.pieces + p) && w > 2.5) mark(context, x, y, w, h, given.get(r * doc.pieces + p));
        if (w > 26 && h > 12) tell(context, colour, share, x + w / 2, y + h / 2);
      }
    }
    numbers(context, n, w);
    const framed = w > 2.5 ? '; framed: given in this round' : '';
    T.tell(tab.key_, doc.sums ? `green: the sum of all ${doc.num_ranks} terms; blue: of some, n/${doc.num_ranks}${framed}.` : `green: it is there; grey: it is not${framed}.`);
  };

  const mark = (context, x, y, w, h, adds) => {
    context.strokeStyle = T.colour(adds ? 'c1' : 'ink');
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 2, w - 3.5, h - 4);
  };

  const tell = (context, colour, share, x, y) => {
    context.fillStyle = T.view.inkOn(colour);
    context.textAlign = 'center';
    context.font = '11px system-ui, sans-serif';
    const num = tab.document.num_ranks;
    if (tab.document.sums) context.fillText(`${Math.round(share * num)}/${num}`, x, y);
    else if (share) context.fillText('✓', x, y);
  };

  const numbers = (context, n, w) => {
    context.fillStyle = T.colour('soft');
    context.textAlign = 'center';
    context.font = '11px system-ui, sans-serif';
    const every = Math.max(1, Math.ceil(26 / w));
    for (let p = 0; p < tab.document.pieces; p += every) context.fillText(String(p), LEFT + (p + 0.5) * w, 9);
    if (!tab.document.pieces) context.fillText('a barrier moves no pieces', LEFT + (n * w) / 2, 9);
  };

  /* ---- time ---- */

  draw.times = (context, width) => {
    const doc = tab.document;
    if (!doc || !doc.rounds.length) return;
    const unit = (width - 16) / Math.max(1e-12, doc.seconds);
    draw.unit = unit;
    doc.rounds.forEach((round, i) => {
      const x = 8 + round.begin_seconds * unit, w = Math.max(1, (round.end_seconds - round.begin_seconds) * unit - 1);
      context.fillStyle = T.view.mix(T.colour('c0'), T.colour('panel'), i < tab.stepper.at ? 0 : 0.65);
      context.fillRect(x, 4, w, 16);
      if (i === tab.stepper.at - 1) {
        context.strokeStyle = T.colour('ink');
        context.lineWidth = 2;
        context.strokeRect(x, 4, w, 16);
      }
    });
    context.fillStyle = T.colour('soft');
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'top';
    for (const at of T.ticks(0, doc.seconds, Math.max(2, width / 130))) {
      context.textAlign = at === 0 ? 'left' : 'center';
      context.fillText(at === 0 ? '0' : T.view.seconds(at), Math.min(width - 30, 8 + at * unit), 26);
    }
  };

  draw.pickTime = (x) => {
    const at = (x - 8) / draw.unit;
    tab.stepper.go(tab.document.rounds.filter((r) => r.begin_seconds <= at).length);
  };
}
