/* What is new: by events of the server, or by asking where there are none. Says when the connection
 * is lost, and tries again for as long as the page is open. */
'use strict';

T.live = { source: null, state: 'none', retry: 0, tries: 0, polls: 0, heard: 0 };

T.live.tell = (state) => {
  if (T.live.state === state) return;
  T.live.state = state;
  const words = { live: 'live', asking: 'live, by asking', lost: 'connection lost, trying again', none: '' };
  const link = T.id('link');
  T.tell(link, words[state]);
  link.className = 'link ' + state;
  const trouble = T.id('trouble');
  trouble.hidden = state !== 'lost';
  T.tell(trouble, state === 'lost' ? 'Connection lost, trying again. What is shown may be old.' : '');
};

T.live.parse = (event) => {
  try {
    const data = JSON.parse(event.data);
    return Array.isArray(data) ? data : [data];
  } catch (error) {
    return [];
  }
};

T.live.takeLine = (line) => {
  const run = T.runOf(line.id);
  if (!run) return;
  T.store.add(line.id, line);
  T.details.takeLoads(line.id, line);
  run.step = Math.max(run.step || 0, line.step);
  run.loss = line.loss;
  if (T.known(line.tokens_per_s)) run.tokens_per_s = T.known(run.tokens_per_s) ? 0.95 * run.tokens_per_s + 0.05 * line.tokens_per_s : line.tokens_per_s;
  if (T.known(line.eval_loss)) run.eval_loss = line.eval_loss;
};

/* Keys that a run did not have before, its first held-out loss, say. */
T.live.newKeys = (line) => {
  const known = T.curves.has.get(line.id);
  if (!known) return;
  const fresh = Object.keys(line).filter((key) => T.known(line[key]) && !known.has(key));
  fresh.forEach((key) => known.add(key));
  if (fresh.some((key) => !T.curves.never.includes(key))) T.curves.select().catch((error) => T.emit('failed', error));
};

T.live.take = {
  step(event) {
    const lines = T.live.parse(event);
    lines.forEach(T.live.takeLine);
    for (const line of lines) T.live.newKeys(line);
    T.emit('lines');
  },
  note(event) {
    for (const note of T.live.parse(event)) {
      T.details.add(note.id, 'events', note);
      if (note.reason) T.announce(`${T.nameOf(note.id)}: ${note.reason}`);
      if (['start', 'restart', 'shrink', 'rollback'].includes(note.event)) T.curves.reload();
      T.live.listSoon();
    }
  },
  sample(event) {
    for (const sample of T.live.parse(event)) T.details.add(sample.id, 'samples', sample);
  },
  ranks(event) {
    for (const doc of T.live.parse(event)) T.ranks.take(doc.id || T.state.focus, doc);
  },
  /* Numbers of all runs; what else there is of a new one, or of one in another state, is asked for. */
  runs(event) {
    const brief = T.live.parse(event).flatMap((doc) => doc.runs || []);
    const other = brief.some((run) => !T.runOf(run.id) || T.runOf(run.id).state !== run.state);
    if (other || brief.length !== T.state.runs.length) T.live.listSoon();
    for (const run of brief) if (T.runOf(run.id)) Object.assign(T.runOf(run.id), { step: run.step, total: run.total, loss: run.loss });
    T.emit('lines');
  },
  gap() {
    T.live.again();
  },
};

T.live.list = () => T.runs.load().then(T.live.followNew).catch(T.live.failed);
T.live.listSoon = T.throttle(500, T.live.list);

/* Where nothing was selected, the first run that appears is. */
T.live.followNew = () => {
  if (!T.live.chosen && T.state.selected.length === 0 && T.state.runs.length > 0) T.select([T.state.runs[0].id]);
};

T.live.close = () => {
  if (T.live.source) T.live.source.close();
  T.live.source = null;
  clearTimeout(T.live.retry);
};

/* One stream for all selected runs that go on. */
T.live.open = () => {
  T.live.close();
  if (!window.EventSource) return T.live.ask();
  const ids = T.state.selected.join(',');
  const source = new EventSource(T.data.url('/events', ids ? { id: ids } : {}));
  T.live.source = source;
  source.onopen = () => {
    const again = T.live.state === 'lost';
    T.live.tries = 0;
    T.live.tell('live');
    if (again) T.live.again();
    else if (T.state.selected.some((id) => T.isLive(T.runOf(id)))) T.curves.reload(); /* lines between the curves and this */
  };
  source.onerror = () => {
    if (source !== T.live.source) return;
    if (source.readyState === EventSource.CLOSED) T.live.failed();
    else T.live.tell('lost'); /* the browser connects again by itself */
  };
  for (const name of Object.keys(T.live.take)) source.addEventListener(name, (event) => {
    T.live.heard++;
    T.live.take[name](event);
  });
  return undefined;
};

/* What was missed while there was no connection. */
T.live.again = () => {
  T.live.list();
  T.emit('again');
};

T.live.failed = (error) => {
  if (T.data.held) return;
  if (error && /: 4\d\d$/.test(error.message || '')) console.warn(error.message);
  clearTimeout(T.live.retry);
  T.live.tries++;
  T.live.tell('lost');
  T.live.retry = setTimeout(T.live.tryAgain, Math.min(15000, 500 * 2 ** Math.min(T.live.tries, 5)));
};

/* The list answers where the stream is refused (there are too many): then the page asks. */
T.live.tryAgain = async () => {
  try {
    await T.runs.load();
  } catch (error) {
    T.live.failed(error);
    return;
  }
  if (T.live.tries > 3) T.live.ask();
  else T.live.open();
};

T.live.ask = () => {
  T.live.close();
  if (++T.live.polls % 12 === 0) T.live.tries = 0; /* there may be room for a stream by now */
  T.live.tell('asking');
  T.live.again();
  T.live.retry = setTimeout(T.live.tryAgain, 5000);
};

T.live.begin = () => {
  if (T.data.held) return;
  T.live.open();
  T.on('selected', T.throttle(400, T.live.open)); /* the server counts streams, and learns late that one has gone */
  T.on('state', () => T.emit('again'));
  T.on('failed', T.live.failed);
  /* Runs that are not selected have no stream; nobody looks at a hidden page. */
  setInterval(() => {
    if (!document.hidden && T.live.state === 'live') T.live.list();
  }, 10000);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && T.live.state === 'live') T.live.list();
  });
};
