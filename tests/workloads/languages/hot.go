// Three functions that take 6, 3 and 1 parts of the time, for two seconds.
package main

import "time"

var sink int

//go:noinline
func burnMost(rounds int) { for k := 0; k < rounds*6; k++ { sink ^= k } }

//go:noinline
func burnSome(rounds int) { for k := 0; k < rounds*3; k++ { sink ^= k } }

//go:noinline
func burnLeast(rounds int) { for k := 0; k < rounds; k++ { sink ^= k } }

func main() {
	for begun := time.Now(); time.Since(begun) < 2*time.Second; {
		burnMost(10000)
		burnSome(10000)
		burnLeast(10000)
	}
}
