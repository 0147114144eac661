'use strict';

// The page of the lab: settings, one or two runs beside each other, and what they do, drawn as it comes.

// marks are the signs of events, by kind: a class, a path around 0,0, and words for the legend.
const cross = 'M-4 -4L4 4M-4 4L4 -4';
const marks = {
  acquired: ['acquired', 'M0 -5V5M-3 -5H3', 'has the lock'],
  announced: ['announced', 'M-4 0L3 -4V4Z', 'is woken by a message'],
  woken: ['wake', 'M0 -2V2', 'looks again'],
  renewed: ['renewed', 'M-3 0A3 3 0 1 1 3 0', 'the lock is renewed'],
  filled: ['filled', 'M0 -4L4 0L0 4L-4 0Z', 'the value is cached'],
  unlocked: ['unlocked', 'M-3 5H3M0 5V-5', 'the lock is given back'],
  'not mine': ['unlocked', 'M-4 0H4', 'leaves the lock of another alone'],
  aborted: ['wrong', 'M-4 0H4M0 -4V4', 'could not give it back'],
  broken: ['wrong', 'M-4 4L0 -4L4 4', 'deletes a lock that looks abandoned'],
  refused: ['refused', 'M-4 -4H4V4H-4Z', 'a late value is refused'],
  'wrong delete': ['wrong', cross, 'the lock of another is deleted'],
  'stale write': ['stale', 'M-5 4L0 -5L5 4Z', 'a stale value is cached'],
  crash: ['crash', cross + 'M-6 0H6M0 -6V6', 'the replica dies'],
  stall: ['crash', 'M-3 -5V5M3 -5V5', 'stands still'],
  'goes on': ['acquired', 'M-3 -4L4 0L-3 4Z', 'goes on'],
  failed: ['failed', 'M-3 -3L3 3M-3 3L3 -3', 'gets an error'],
};
const world = { rename: 'renamed', 'redis down': 'Redis down', 'redis up': 'Redis up', failover: 'another Redis', 'lost vote': 'a vote is lost' };
const ends = new Set(['answered', 'failed']);
const looks = new Set(['miss', 'try', 'wait', 'woken']); // those come ten times a second: the list has the first of them

// Scale is the time that the runs beside each other have in common: what is as long is drawn as long.
class Scale {
  now = 1; // of the run that is furthest
  most = 1; // that a request has waited, in the runs that are over
  panels = [];

  add(panel) {
    this.panels.push(panel);
    panel.scale = this;
  }

  // later has all be drawn when the browser draws next.
  later() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; for (const p of this.panels) p.draw(); });
  }

  waited(most) {
    this.most = Math.max(this.most, most);
    for (const p of this.panels) p.distribution();
  }
}

class Panel {
  constructor(stage, settings, scale) {
    scale.add(this);
    this.root = find('#panel').content.firstElementChild.cloneNode(true);
    this.stage = stage;
    this.replicas = +settings.get('replicas');
    // How many loads may be, once each replica is on its own: it can't reach Redis, or who loads for it stands still.
    this.enough = ['redis-down', 'stall'].includes(settings.get('fault')) ? this.replicas + 1 : 2;
    this.requests = new Map(); // by number
    this.world = [];
    this.lanes = new Map(); // marks of a replica itself
    this.last = 1; // event
    this.seen = 0;
    find('.title', this.root).textContent = stage.title;
    find('.flaw', this.root).textContent = stage.flaw ? 'Its flaw: ' + stage.flaw : '';
    find('.verdict', this.root).textContent = 'It runs …';
    this.svg = find('.timeline', this.root);
    this.draw();
  }

  steps(events) {
    for (const e of events) this.step(e);
    this.scale.later();
  }

  step(e) {
    this.last = Math.max(this.last, e.at);
    this.scale.now = Math.max(this.scale.now, e.at);
    if (e.replica === 0) {
      if (world[e.kind]) this.world.push(e);
    } else if (e.request === 0) {
      if (!this.lanes.has(e.replica)) this.lanes.set(e.replica, []);
      this.lanes.get(e.replica).push(e);
    } else {
      this.request(e);
    }
    this.list(e);
  }

  request(e) {
    let r = this.requests.get(e.request);
    if (!r) this.requests.set(e.request, r = { replica: e.replica, number: e.request, from: e.at, bars: [], marks: [] });
    const open = kind => r.bars.find(b => b.kind === kind && b.to === undefined);
    const close = kind => { const b = open(kind); if (b) b.to = e.at; };
    switch (e.kind) {
    case 'acquired': r.bars.push({ kind: 'hold', from: e.at }); break;
    case 'load': r.bars.push({ kind: 'load', from: e.at }); break;
    case 'loaded': close('load'); break;
    case 'unlocked': case 'not mine': case 'aborted': close('hold'); break;
    }
    if (ends.has(e.kind) || e.kind === 'crash') {
      r.to = e.at;
      close('load');
      close('hold');
    }
    if (marks[e.kind] && r.marks.length < 400) r.marks.push(e);
  }

  list(e) {
    if (looks.has(e.kind) && ++this.seen > 100) return;
    const body = find('tbody', this.root);
    if (body.childElementCount > 2000) return;
    const row = body.insertRow();
    for (const text of [e.at.toFixed(1), e.replica || '', e.request || '', e.note ? e.kind + ': ' + e.note : e.kind]) row.insertCell().textContent = text;
  }

  draw() {
    const labelWidth = 90, labelHeight = 13;
    const left = 74, rowHeight = 9, gap = 12, width = Math.max(320, this.svg.clientWidth || 800);
    const byLane = Array.from({ length: this.replicas }, () => []);
    for (const r of this.requests.values()) byLane[r.replica - 1].push(r);
    const x = at => left + (width - left - 12) * at / this.scale.now;
    const picture = document.createDocumentFragment();
    let rows = 1; // of what the world does: what is close together is said on lines below each other
    const labels = this.world.map((e, i) => {
      const close = i > 0 && x(e.at) - x(this.world[i - 1].at) < labelWidth;
      return { e, row: close ? rows++ : 0 };
    });
    const top = 3 + rows * labelHeight;
    let y = top;
    byLane.forEach((requests, i) => {
      const height = Math.max(2, requests.length) * rowHeight;
      const lane = shape('g', { class: 'lane', 'data-replica': i + 1 });
      lane.append(shape('text', { x: 0, y: y + 10, class: 'lane' }, 'replica ' + (i + 1)));
      requests.sort((a, b) => a.number - b.number).forEach((r, row) => this.drawRequest(lane, r, y + row * rowHeight, rowHeight, x));
      for (const e of this.lanes.get(i + 1) || []) lane.append(this.mark(e, x(e.at), y + height / 2));
      lane.append(shape('line', { class: 'between', x1: 0, x2: width, y1: y + height + gap / 2, y2: y + height + gap / 2 }));
      picture.append(lane);
      y += height + gap;
    });
    for (const { e, row } of labels) {
      picture.append(shape('line', { class: 'world', 'data-kind': e.kind, x1: x(e.at), x2: x(e.at), y1: 2 + row * labelHeight, y2: y }));
      const right = x(e.at) > width - labelWidth;
      picture.append(shape('text', { class: 'world-text', x: x(e.at) + (right ? -4 : 4), y: 11 + row * labelHeight, 'text-anchor': right ? 'end' : 'start' }, world[e.kind]));
    }
    const ticks = width > 500 ? 4 : 2;
    for (let n = 0; n <= ticks; n++) {
      const at = this.scale.now * n / ticks;
      picture.append(shape('text', { x: x(at), y: y + 12, 'text-anchor': n === ticks ? 'end' : 'middle' }, Math.round(at) + ' ms'));
    }
    this.svg.replaceChildren(picture);
    this.svg.setAttribute('viewBox', `0 0 ${width} ${y + 18}`);
    this.svg.style.height = y + 18 + 'px';
    this.svg.setAttribute('aria-label', `${this.replicas} lanes, one for each replica, with ${this.requests.size} requests; the list below has the same as text`);
  }

  drawRequest(lane, r, y, height, x) {
    const bar = (kind, from, to, inset) => shape('rect', {
      class: kind, x: x(from), y: y + inset, width: Math.max(1, x(to ?? this.end ?? this.scale.now) - x(from)), height: height - 2 * inset,
    });
    lane.append(bar('request', r.from, r.to, 3));
    for (const b of r.bars) lane.append(bar(b.kind, b.from, b.to, b.kind === 'hold' ? 1 : 2));
    for (const e of r.marks) lane.append(this.mark(e, x(e.at), y + height / 2));
  }

  mark(e, x, y) {
    const [look, path] = marks[e.kind];
    const m = shape('path', { class: 'mark ' + look, 'data-kind': e.kind, d: path, transform: `translate(${x} ${y})` });
    m.append(shape('title', {}, `${e.at.toFixed(1)} ms: ${e.kind}`));
    return m;
  }

  report(r) {
    const herd = (r.stage === 'herd' || r.stage === 'predecessor') && r.wakeups > 2 * r.waited;
    const bad = herd || r.stuck > 0 || r.wrongDeletes > 0 || r.holders > 1 || r.failed > 0 || (r.cached !== '' && r.cached !== r.origin) ||
      r.staleAnswers > 0 || r.loads > this.enough;
    this.verdict(r.verdict, bad ? 'bad' : 'good');
    const numbers = find('.numbers', this.root);
    const say = (name, value) => {
      const d = document.createElement('div'), dt = document.createElement('dt'), dd = document.createElement('dd');
      dt.textContent = name;
      dd.textContent = value;
      dd.dataset.name = name;
      d.append(dt, dd);
      numbers.append(d);
    };
    say('loads', r.loads);
    say('answered', `${r.answered} of ${r.requests}`);
    say('waited for a lock', r.waited);
    say('wake-ups', r.wakeups);
    say('wrong deletes', r.wrongDeletes);
    say('stale writes', r.staleWrites);
    say('stale answers', r.staleAnswers);
    say('half within', `${r.waits.p50.toFixed(0)} ms`);
    say('all within', `${r.waits.max.toFixed(0)} ms`);
    this.waits = r.waits;
    this.end = this.last; // who waits for ever waits until here
    this.scale.waited(r.waits.max);
    this.draw();
  }

  distribution() {
    const waits = this.waits;
    if (!waits) return;
    const svg = find('.waits', this.root), bins = 24, most = this.scale.most, width = Math.max(240, svg.clientWidth);
    const counts = new Array(bins).fill(0);
    for (const w of waits.each) counts[Math.min(bins - 1, Math.floor(bins * w / most))]++;
    const top = Math.max(1, ...counts), picture = [];
    counts.forEach((n, i) => {
      if (n > 0) picture.push(shape('rect', { class: 'bar', x: width * i / bins + 1, width: width / bins - 2, y: 50 - 45 * n / top, height: 45 * n / top }));
    });
    picture.push(shape('line', { class: 'axis', x1: 0, x2: width, y1: 50.5, y2: 50.5 }));
    picture.push(shape('text', { x: 0, y: 64 }, '0 ms'), shape('text', { x: width, y: 64, 'text-anchor': 'end' }, most.toFixed(0) + ' ms'));
    svg.setAttribute('viewBox', `0 0 ${width} 70`);
    svg.replaceChildren(...picture);
    svg.setAttribute('aria-label', `${waits.each.length} answers: half of them within ${waits.p50.toFixed(0)} ms, all within ${waits.max.toFixed(0)} ms`);
  }

  verdict(text, look) {
    const v = find('.verdict', this.root);
    v.textContent = text;
    v.className = 'verdict ' + look;
  }
}

// Refused is the shop's own word why there is no run.
class Refused extends Error {}

// Lab is the page.
class Lab {
  async open() {
    const answer = await fetch('/lab/choices.json');
    this.choices = await answer.json();
    this.fill('stage', this.choices.stages, s => s.title);
    this.fill('versus', this.choices.stages, s => s.title);
    this.fill('fault', this.choices.faults, f => f.text);
    this.legend();
    this.form = find('#settings');
    this.sources = [];
    this.read(new URLSearchParams(location.search));
    find('#fault').addEventListener('change', () => this.explain());
    this.form.addEventListener('submit', e => { e.preventDefault(); this.tour.leave(); this.run(); });
    find('#stop').addEventListener('click', () => this.stop('It was stopped.'));
    addEventListener('popstate', () => {
      const query = new URLSearchParams(location.search);
      if (query.has('tour')) this.tour.go(query.get('tour') - 1);
      else this.read(query);
    });
    this.tour = new Tour(this);
    const query = new URLSearchParams(location.search);
    if (query.has('tour')) this.tour.go(query.get('tour') - 1);
    else if (query.has('stage')) this.run();
    else this.show({ stage: 'none', versus: 'cacheguard' }); // something to look at
  }

  // show runs with these settings, and the defaults of the others.
  show(settings, address) {
    this.read(new URLSearchParams(settings));
    this.run(address ?? location.search);
  }

  fill(id, choices, title) {
    for (const c of choices) {
      const o = new Option(c.needs ? `${title(c)} (needs ${c.needs})` : title(c), c.name);
      o.disabled = !!c.needs;
      find('#' + id).append(o);
    }
  }

  // read puts the settings of an address into the form.
  read(query) {
    for (const e of this.form.elements) {
      if (!e.name) continue;
      const value = query.get(e.name) ?? this.choices.defaults[e.name]?.[0] ?? '';
      if (e.options && ![...e.options].some(o => o.value === value)) e.append(new Option(value, value));
      e.value = value;
    }
    this.explain();
  }

  // explain says the chosen fault as a whole, for the list may be too narrow, and asks how far a clock is ahead where it matters.
  explain() {
    const fault = find('#fault'), text = fault.selectedOptions[0]?.text ?? '';
    find('#goes-wrong').textContent = fault.value === 'none' || !text ? '' : 'In this run ' + text + '.';
    const field = find('#clock'), matters = fault.value === 'clock';
    field.hidden = !matters;
    find('input', field).disabled = !matters;
  }

  legend() {
    for (const [look, path, words] of Object.values(marks)) {
      const li = document.createElement('li'), svg = shape('svg', { viewBox: '-12 -7 24 14', 'aria-hidden': 'true' });
      svg.append(shape('path', { class: 'mark ' + look, d: path }));
      li.append(svg, words);
      find('#legend').append(li);
    }
    for (const [look, words] of [['request', 'a request waits'], ['hold', 'holds the lock'], ['load', 'loads']]) {
      const li = document.createElement('li'), svg = shape('svg', { viewBox: '0 0 24 14', 'aria-hidden': 'true' });
      svg.append(shape('rect', { class: look, x: 2, y: 4, width: 20, height: 6 }));
      li.append(svg, words);
      find('#legend').append(li);
    }
  }

  // run begins what the form says, and puts that, or what is given, into the address.
  run(address) {
    this.stop('It was stopped.');
    find('#problem').textContent = '';
    const query = new URLSearchParams(new FormData(this.form));
    // A link may name a stage that can't be chosen here, and that a form doesn't send: the run says what it needs.
    for (const name of ['stage', 'versus']) query.set(name, this.form.elements[name].value);
    const versus = query.get('versus');
    if (!versus) query.delete('versus');
    address ??= '?' + query;
    if (address !== location.search) history.pushState(null, '', address);
    find('#panels').replaceChildren();
    find('#stop').disabled = false;
    const scale = new Scale();
    for (const name of versus ? [query.get('stage'), versus] : [query.get('stage')]) this.follow(name, query, scale);
  }

  follow(name, query, scale) {
    const stage = this.choices.stages.find(s => s.name === name) || { name, title: name };
    const panel = new Panel(stage, query, scale);
    find('#panels').append(panel.root);
    panel.draw();
    const settings = new URLSearchParams(query);
    settings.delete('versus');
    settings.set('stage', name);
    const run = { control: new AbortController(), panel };
    this.sources.push(run);
    const end = () => {
      this.sources = this.sources.filter(s => s !== run);
      if (this.sources.length === 0) find('#stop').disabled = true;
    };
    const told = {
      steps: events => panel.steps(events),
      report: report => { end(); panel.report(report); },
      failed: why => { end(); panel.verdict('It could not be run: ' + why, 'bad'); },
    };
    this.listen(settings, run.control.signal, told).catch(problem => {
      if (run.control.signal.aborted) return; // it was stopped
      end();
      panel.verdict('It could not be run.', 'bad');
      find('#problem').textContent = problem instanceof Refused ? problem.message : 'The shop does not answer: ' + problem.message;
    });
  }

  // listen begins a run and tells of its events. An EventSource can only GET, and no link to anywhere must begin a run.
  async listen(settings, signal, told) {
    const answer = await fetch('/lab/run?' + settings, { method: 'POST', signal });
    if (!answer.ok) throw new Refused((await answer.json()).error);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const events = (text + value).split('\n\n');
      text = events.pop();
      for (const event of events) {
        const [, kind, data] = event.match(/^event: (.*)\ndata: (.*)$/);
        told[kind](JSON.parse(data));
        if (kind !== 'steps') return;
      }
    }
    throw new Error('the run broke off');
  }

  stop(words) {
    for (const { control, panel } of this.sources) {
      control.abort();
      panel.verdict(words, '');
    }
    this.sources = [];
    find('#stop').disabled = true;
  }
}

// tour is the way from no protection to cacheguard: at each step a stage, what goes wrong, and what is to be seen.
const tour = [
  ['none', 'none', 'Nothing protects the map: whoever finds nothing in the cache loads, all of them at once.'],
  ['local', 'none', 'A lock inside the process lets one request of each replica load: as many loads as there are replicas.'],
  ['setnx', 'crash', 'A lock in Redis, made with SETNX, lets one of all load. Its holder dies here, and nobody ever gives the lock back.'],
  ['setnxex', 'slow-unlock', 'SET NX EX ends by itself. But a holder that is slow deletes the lock of the next one, and two load again.'],
  ['compare', 'slow-load', 'With a value of its own, compared and deleted in one script, a holder deletes no other lock. But this load takes longer than the lock lasts, and its late value overwrites a newer one.'],
  ['watchdog', 'stall', 'A watchdog renews the lock while the load runs. But a process that stands still renews nothing, and when it goes on, its late value overwrites a newer one.'],
  ['cacheguard', 'stall', 'cacheguard stores a result only under the very lease that its load began with: the late value is refused.'],
  ['cacheguard', 'redis-down', 'And without Redis? Each replica loads once for itself, nobody waits for Redis for long, and nothing wrong stays.'],
];

// Tour leads through them. Whoever changes a setting has left it.
class Tour {
  constructor(lab) {
    this.lab = lab;
    find('#tour-take').addEventListener('click', () => { this.go(0); find('#tour-next').focus(); });
    find('#tour-back').addEventListener('click', () => this.go(this.at - 1));
    find('#tour-next').addEventListener('click', () => (this.at + 1 < tour.length ? this.go(this.at + 1) : this.leave()));
    find('#tour-leave').addEventListener('click', () => this.leave());
    find('#settings').addEventListener('change', () => this.leave());
  }

  go(step) {
    this.at = Math.min(Math.max(Math.trunc(step) || 0, 0), tour.length - 1);
    const [stage, fault, text] = tour[this.at];
    find('#tour').hidden = false;
    find('#tour-take').hidden = true;
    find('#tour-text').textContent = `${this.at + 1} of ${tour.length}: ${text}`;
    find('#tour-back').disabled = this.at === 0;
    find('#tour-next').textContent = this.at + 1 < tour.length ? 'Next' : 'Done';
    this.lab.show({ stage, fault, ttl: '1s' }, '?tour=' + (this.at + 1));
  }

  leave() {
    if (find('#tour').hidden) return;
    find('#tour').hidden = true;
    find('#tour-take').hidden = false;
    if (find('#tour').contains(document.activeElement)) find('#tour-take').focus();
  }
}

new Lab().open().catch(problem => { find('#problem').textContent = 'The lab does not open: ' + problem.message; });
