/* What is looked at: the runs, which of them are selected, and what all charts share. */
'use strict';

T.state = {
  runs: [], /* of /api/runs, in its order */
  selected: [], /* ids, in the order in which they were chosen: it gives them their colours */
  focus: null, /* the one whose ranks, memory and events are shown */
  details: new Map(), /* id: /api/run */
  x: 'step',
  from: null, to: null, /* the stretch of the x axis that is shown; null: all */
  smooth: 1,
  band: true,
};

T.maxSelected = 16;

T.runOf = (id) => T.state.runs.find((run) => run.id === id) || null;

/* The last part of a path does, where it tells the runs apart. */
T.nameOf = (id) => {
  const run = T.runOf(id);
  if (!run) return id;
  const last = (path) => path.replace(/\/+$/, '').split('/').pop();
  const name = last(run.run);
  return T.state.runs.some((other) => other !== run && last(other.run) === name) ? run.run : name;
};

T.isLive = (run) => run && (run.state === 'running' || run.state === 'stalled');

T.layoutOf = (run) => {
  const parts = ['dp', 'cp', 'tp', 'pp'].filter((axis) => run[axis] > 1).map((axis) => axis + run[axis]);
  return parts.length ? parts.join(' ') : run.dp ? '1 rank' : '–';
};

/* The selection is in the address, so that a reload or a link shows the same. */
T.remember = () => {
  if (T.data.held) return;
  const words = ['runs=' + T.state.selected.join(',')];
  if (T.state.focus && T.state.focus !== T.state.selected[0]) words.push('focus=' + T.state.focus);
  if (T.state.x !== 'step') words.push('x=' + T.state.x);
  history.replaceState(null, '', '#' + words.join('&'));
};

T.recall = () => {
  const words = Object.fromEntries(location.hash.slice(1).split('&').filter((word) => word.includes('='))
    .map((word) => [word.slice(0, word.indexOf('=')), decodeURIComponent(word.slice(word.indexOf('=') + 1))]));
  if (['step', 'tokens', 'hours'].includes(words.x)) T.state.x = words.x;
  return { ids: words.runs ? words.runs.split(',') : [], focus: words.focus || null };
};

T.select = (ids, focus) => {
  const known = ids.filter((id, at) => T.runOf(id) && ids.indexOf(id) === at).slice(0, T.maxSelected);
  T.state.selected = known;
  T.state.focus = known.includes(focus) ? focus : known.includes(T.state.focus) ? T.state.focus : known[0] || null;
  for (const id of T.state.details.keys()) if (!known.includes(id)) T.state.details.delete(id);
  T.state.from = T.state.to = null;
  T.remember();
  T.emit('selected');
  T.emit('focus');
};

T.setFocus = (id) => {
  if (id === T.state.focus) return;
  T.state.focus = id;
  T.remember();
  T.emit('focus');
};

/* Settings, events, samples and memory of a run: asked for once, and again when it has ended. */
T.detailsOf = async (id, again) => {
  if (!again && T.state.details.has(id)) return T.state.details.get(id);
  const asked = T.data.get('/api/run', { id }).catch((error) => {
    T.state.details.delete(id);
    throw error;
  });
  T.state.details.set(id, asked);
  return asked;
};
