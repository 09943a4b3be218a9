/* The picture of a schedule: a row for each rank, time to the right, boxes with letters. What has
 * not begun at the cursor is an outline. */
'use strict';

{
  const tab = T.view.schedule;
  const LEFT = 34, TOP = 6, AXIS = 20;
  const draw = (tab.draw = { unit: 1 });

  const span = () => Math.max(1e-12, tab.document.time, ...tab.document.ranks.map((r) => r.end));
  const rowHeight = () => Math.max(12, Math.min(30, 640 / tab.document.num_ranks));
  const memoryRow = () => Math.max(8, Math.min(26, 420 / tab.document.num_ranks));

  draw.height = () => (tab.document ? TOP + rowHeight() * tab.document.num_ranks + AXIS : 60);
  draw.memoryHeight = () => (tab.document ? TOP + memoryRow() * tab.document.num_ranks + AXIS : 60);
  draw.width = (room) => {
    if (!tab.document) return room;
    const width = LEFT + (room - LEFT - 8) * tab.zoom + 8;
    draw.unit = (width - LEFT - 8) / span();
    return width;
  };
  draw.x = (time) => LEFT + time * draw.unit;
  draw.timeAt = (x) => (x - LEFT) / draw.unit;
  draw.rankAt = (y) => Math.floor((y - TOP) / rowHeight());

  /* Kinds have hues; a rank's further chunks are faded. */
  const colours = () => {
    const panel = T.colour('panel'), of = {};
    for (const [kind, name] of [['F', 'c0'], ['B', 'c1'], ['I', 'c2'], ['W', 'c3'], ['U', 'c4']])
      of[kind] = [0, 1, 2, 3].map((n) => T.view.mix(T.colour(name), panel, Math.min(0.62, n * 0.28)));
    return of;
  };

  /* Which of its rank's chunks a chunk is, in the order of their numbers. */
  const chunkPlaces = () => {
    const chunks = tab.document.ranks.map(() => new Set());
    for (const a of tab.actions) chunks[a.rank].add(a.chunk);
    return chunks.map((set) => new Map([...set].sort((a, b) => a - b).map((c, i) => [c, i])));
  };

  const axis = (context, height, width) => {
    context.fillStyle = T.colour('soft');
    context.textBaseline = 'top';
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'center';
    for (const at of T.ticks(0, span(), Math.max(2, width / 90)))
      context.fillText(T.num(at), Math.min(width - 14, draw.x(at)), height - AXIS + 5);
  };

  const names = (context, row, num) => {
    context.fillStyle = T.colour('soft');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.font = `${Math.min(12, Math.max(8, row - 4))}px system-ui, sans-serif`;
    for (let r = 0; r < num; r++) context.fillText(String(r), LEFT - 6, TOP + (r + 0.5) * row);
  };

  /* Chunks are named where there is room in every box: all of them, or none. */
  const namesChunks = () => {
    const doc = tab.document;
    const fits = (a) => a.end <= a.start || `${a.chunk}${a.kind}${a.microbatch}`.length * 6.3 + 4 <= (a.end - a.start) * draw.unit;
    return (doc.chunks > doc.num_ranks || doc.routes > 1) && tab.actions.every(fits);
  };

  /* As much of "7F3" as fits: chunk, kind, micro-batch. */
  const label = (context, a, width, long) => {
    const texts = [`${a.kind}${a.microbatch}`, a.kind];
    if (long) texts.unshift(`${a.chunk}${a.kind}${a.microbatch}`);
    return texts.find((text) => context.measureText(text).width + (text.length > 1 ? 4 : 1) <= width) || '';
  };

  const box = (context, a, colour, row, begun, half) => {
    const x = draw.x(a.start), w = Math.max(0.8, (a.end - a.start) * draw.unit);
    const h = (row - 3) / (half ? 2 : 1), y = TOP + a.rank * row + 1.5 + (half === 2 ? h : 0);
    const gap = w > 4 ? 1 : 0;
    if (begun) {
      context.fillStyle = colour;
      context.fillRect(x, y, w - gap, h);
    } else {
      context.strokeStyle = T.view.mix(colour, T.colour('panel'), 0.45);
      context.lineWidth = 1;
      if (w > 3) context.strokeRect(x + 0.5, y + 0.5, w - gap - 1, h - 1);
    }
    return { x, y, w, h };
  };

  const outline = (context, place) => {
    context.strokeStyle = T.colour('ink');
    context.lineWidth = 2.5;
    context.strokeRect(place.x - 0.5, place.y - 0.5, Math.max(3, place.w), place.h + 1);
  };

  /* The two halves of a pair lie over each other where they take the same time. */
  const halfOf = (a) => {
    const next = tab.document.ranks[a.rank].actions;
    const same = (b) => b && b[3] === a.start && b[4] === a.end && a.end > a.start;
    return a.pair && same(next[a.place + 1]) ? 1 : same(next[a.place - 1]) && next[a.place - 1][5] ? 2 : 0;
  };

  draw.picture = (context, width, height) => {
    const doc = tab.document;
    if (!doc) return;
    const row = rowHeight(), of = colours(), places = chunkPlaces(), at = tab.stepper.at;
    const long = namesChunks();
    let current = null;
    axis(context, height, width);
    names(context, row, doc.num_ranks);
    context.font = `${Math.min(11, row - 3)}px system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    tab.actions.forEach((a, i) => {
      const colour = of[a.kind][Math.min(3, places[a.rank].get(a.chunk))];
      const half = halfOf(a), place = box(context, a, colour, row, i < at, half);
      const text = row < 11 || (half && row < 20) ? '' : label(context, a, place.w, long);
      if (text) {
        context.fillStyle = i < at ? T.view.inkOn(colour) : T.colour('soft');
        context.fillText(text, place.x + place.w / 2, place.y + place.h / 2 + 0.5);
      }
      if (i === at - 1) current = place;
    });
    updates(context, row, of.U[0]);
    messages(context, row);
    if (current && tab.time < Infinity) outline(context, current);
  };

  /* Of a synchronous step: each rank updates when it is done. */
  const updates = (context, row, colour) => {
    for (const r of tab.document.ranks) {
      if (!(r.update > 0)) continue;
      const a = { rank: r.rank, start: r.end, end: r.end + r.update };
      const place = box(context, a, colour, row, tab.time === Infinity, 0);
      context.fillStyle = T.view.inkOn(colour);
      if (place.w > 10) context.fillText('U', place.x + place.w / 2, place.y + place.h / 2);
    }
  };

  /* Lines from who sends to who receives: those at the cursor, or, where they are few, all. */
  const messages = (context, row) => {
    const all = tab.document.messages, few = all.length <= 120;
    context.lineWidth = 1.2;
    for (const [from, to, , , , start, end] of all) {
      const now = start <= tab.time && tab.time <= end && tab.time < Infinity;
      if (!now && (!few || start > tab.time)) continue;
      context.globalAlpha = now ? 1 : 0.3;
      context.strokeStyle = T.colour('ink');
      context.beginPath();
      context.moveTo(draw.x(start), TOP + (from + 0.5) * row);
      context.lineTo(draw.x(end), TOP + (to + 0.5) * row);
      context.stroke();
    }
    context.globalAlpha = 1;
  };

  draw.memory = (context, width, height) => {
    const doc = tab.document;
    if (!doc) return;
    const row = memoryRow(), most = Math.max(1, ...doc.ranks.map((r) => r.live_chunks));
    axis(context, height, width);
    names(context, row, doc.num_ranks);
    doc.ranks.forEach((rank, r) => {
      const base = TOP + (r + 1) * row - 1;
      context.fillStyle = T.colour('c0');
      context.globalAlpha = 0.75;
      rank.live.forEach(([time, held], i) => {
        const end = i + 1 < rank.live.length ? rank.live[i + 1][0] : rank.end;
        const h = (held / most) * (row - 2);
        context.fillRect(draw.x(time), base - h, Math.max(0, (end - time) * draw.unit), h);
      });
      context.globalAlpha = 1;
      context.fillStyle = T.colour('line');
      context.fillRect(LEFT, base, width - LEFT - 8, 1);
    });
    if (tab.time >= 0 && tab.time < Infinity) {
      context.fillStyle = T.colour('ink');
      context.fillRect(draw.x(tab.time) - 0.75, TOP, 1.5, row * doc.num_ranks);
    }
  };
}
