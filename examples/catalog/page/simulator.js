'use strict';

// The page of the simulator: a fleet by sliders, and its hour without protection and with the chosen one, on one scale.

// choices are what the sliders go through, with what they begin at.
const choices = {
  replicas: [50, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]],
  rate: [5000, [50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000]],
  load: ['500ms', ['5ms', '10ms', '20ms', '50ms', '100ms', '200ms', '500ms', '1s', '2s', '5s']],
  ttl: ['1m', ['10s', '30s', '1m', '2m', '5m', '10m', '30m', '1h']],
};

const form = find('#settings');
const millis = nanos => (nanos < 1e6 ? +(nanos / 1e6).toPrecision(2) : nanos < 1e9 ? Math.round(nanos / 1e6) : Math.round(nanos / 1e8) * 100) + ' ms';
const number = n => (n < 10 ? +n.toPrecision(2) : Math.round(n)).toLocaleString('en').replaceAll(',', '\u202f');

// settings is what the sliders say, as in an address.
function settings() {
  const query = new URLSearchParams();
  for (const [name, [, values]] of Object.entries(choices)) query.set(name, values[form.elements[name].value]);
  query.set('policy', form.elements.policy.value);
  return query;
}

// say has each slider say its value, to who sees it and to who hears it.
function say() {
  for (const [name, [, values]] of Object.entries(choices)) {
    const slider = form.elements[name], text = String(values[slider.value]);
    find('output', slider.parentElement).textContent = text;
    slider.setAttribute('aria-valuetext', text);
  }
}

function open() {
  const given = new URLSearchParams(location.search);
  for (const [name, [usual, values]] of Object.entries(choices)) {
    const slider = form.elements[name], at = values.findIndex(v => String(v) === given.get(name));
    slider.min = 0;
    slider.max = values.length - 1;
    slider.value = at < 0 ? values.indexOf(usual) : at;
  }
  const policy = given.get('policy');
  if ([...form.elements.policy.options].some(o => o.value === policy)) form.elements.policy.value = policy;
  say();
  form.addEventListener('input', say);
  form.addEventListener('change', () => { history.replaceState(null, '', '?' + settings()); run(); });
  form.addEventListener('submit', e => e.preventDefault());
  run();
}

// run simulates what the form says. What is asked for later counts.
let control;
async function run() {
  control?.abort();
  const mine = control = new AbortController();
  const name = form.elements.policy.value;
  find('#state').textContent = 'It is being simulated …';
  find('#problem').textContent = '';
  try {
    let answer;
    for (let tries = 0; ; tries++) {
      answer = await fetch('/lab/simulate?' + settings(), { method: 'POST', signal: mine.signal });
      if (answer.status !== 503 || tries === 20) break;
      await new Promise(done => setTimeout(done, 500)); // the one before is being ended, perhaps
    }
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error);
    if (mine === control) show(said, name);
  } catch (problem) {
    if (mine.signal.aborted) return;
    find('#state').textContent = '';
    find('#problem').textContent = 'It could not be simulated: ' + problem.message;
  }
}

function show({ plan, results }, name) {
  const [without, using] = results;
  find('#with').textContent = name;
  find('#results').hidden = false;
  chart('#loads', plan, results, s => s.loadsPerSecond, number, 'Loads of the origin a second');
  chart('#p99', plan, results, s => s.p99Nanos / 1e6, v => number(v) + ' ms', 'Time of a request, but for the slowest hundredth');
  const row = (title, r) => {
    const tr = document.createElement('tr');
    for (const text of [title, number(r.loads), number(r.peakLoads), number(r.mostOfOne), millis(r.all.p99Nanos), number(r.errors)]) {
      const td = document.createElement('td');
      td.textContent = text;
      tr.append(td);
    }
    return tr;
  };
  find('#results tbody').replaceChildren(row('no protection', without), row(name, using));
  const short = results.filter(r => r.untilNanos < plan.timeNanos).map(r => (r === without ? 'without protection' : 'with it'));
  find('#state').textContent = number(without.loads) + ' loads without protection, ' + number(using.loads) + ' with it.' +
    (short.length ? ' Cut short ' + short.join(' and ') + ': the origin does not keep up, and there is too much to simulate.' : '');
}

// chart draws a line for each result over the hour, on a scale of powers of ten.
function chart(where, plan, results, of, text, title) {
  const svg = find(where), left = 70, right = 595, top = 10, bottom = 175;
  const all = results.map(r => r.series.map(s => ({ at: s.atNanos, value: of(s) })));
  const values = all.flat().map(p => p.value).filter(v => v > 0);
  const low = Math.floor(Math.log10(Math.min(...values, 1))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values, 1))));
  const x = at => left + (right - left) * at / plan.timeNanos;
  const y = value => bottom - (bottom - top) * (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low);
  const parts = [];
  for (let power = low; power <= high; power++) {
    parts.push(shape('path', { class: 'grid', d: `M${left} ${y(10 ** power)}H${right}` }));
    parts.push(shape('text', { x: left - 5, y: y(10 ** power) + 4, 'text-anchor': 'end' }, text(10 ** power)));
  }
  for (let minute = 0; minute <= 60; minute += 15) parts.push(shape('text', { x: x(minute * 6e10), y: 193, 'text-anchor': minute === 60 ? 'end' : 'middle' }, minute + ' min'));
  parts.push(shape('rect', { class: 'away', x: x(plan.failoverAtNanos), y: top, width: Math.max(2, x(plan.failoverForNanos) - left), height: bottom - top }));
  const words = ['no protection', 'with protection'].map((who, n) => {
    const line = all[n];
    parts.push(shape('path', { class: 'line ' + (n ? 'with' : 'without'), d: 'M' + line.map(p => x(p.at).toFixed(1) + ' ' + y(p.value).toFixed(1)).join('L') }));
    const sorted = line.map(p => p.value).sort((a, b) => a - b);
    return `${who}: ${text(sorted[Math.floor(sorted.length / 2)])} at the median, ${text(sorted.at(-1))} at most`;
  });
  svg.replaceChildren(...parts);
  svg.setAttribute('aria-label', title + '. ' + words.join('; '));
}

open();
