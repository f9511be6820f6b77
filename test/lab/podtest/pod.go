// Package podtest has the JSON of pods of a realistic size, for tests and benchmarks.
package podtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// JSON returns a pod of 14 KB as an API server sends it. Half of it is managedFields.
func JSON(seed uint64) []byte { return pod(seed, 60) }

// Published returns a pod of 6 KB as it is published, without managedFields.
func Published(seed uint64) []byte { return pod(seed, 0) }

// pod returns the text of a pod that is not too repetitive.
func pod(seed uint64, managers int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%x","namespace":"default","uid":"%x","resourceVersion":"%d"`, r.Uint32(), r.Uint64(), r.Uint32())
	if managers > 0 {
		b.WriteString(`,"managedFields":[`)
		for n := range managers {
			fmt.Fprintf(&b, `{"f:spec":{"f:containers":{"k:{\"name\":\"c-%d\"}":{".":{},"f:env":{"k:{\"name\":\"%x\"}":{}}}}}},`, n, r.Uint32())
		}
		b.WriteString(`{}]`)
	}
	b.WriteString(`},"spec":{"env":[`)
	for range 110 {
		fmt.Fprintf(&b, `{"name":"SETTING_%x","value":"%x-information"},`, r.Uint32()%97, r.Uint64())
	}
	b.WriteString(`{}]}}`)
	return []byte(b.String())
}
