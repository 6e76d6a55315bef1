// Three functions that take 6, 3 and 1 parts of the time, for two seconds.
let sink = 0;
function burnMost(rounds) { for (let k = 0; k < rounds * 6; k++) sink ^= k; }
function burnSome(rounds) { for (let k = 0; k < rounds * 3; k++) sink ^= k; }
function burnLeast(rounds) { for (let k = 0; k < rounds; k++) sink ^= k; }
for (const end = Date.now() + 2000; Date.now() < end;) {
  burnMost(10000);
  burnSome(10000);
  burnLeast(10000);
}
