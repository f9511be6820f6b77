package sizing

import "testing"

func TestPeak(t *testing.T) {
	c := Constants{Base: 1000, Fixed: 6, FirstSync: 4, Deleted: 7, Share: 0.5, GC: 2, InFlight: 3, InFlightShare: 0.25}
	tests := []struct {
		name                          string
		objects, deletes, bytes, want int64
	}{
		{"nothing", 0, 0, 100, 1000},
		{"fewer than may be in flight", 2, 0, 100, 1000 + 2*2*60 + 2*2*25},
		{"more", 100, 0, 100, 1000 + 2*100*60 + 2*3*25},
		{"deletes", 2, 9, 100, 1000 + 2*2*60 + 2*9*7 + 2*2*25},
	}
	for _, tt := range tests {
		if got := c.Peak(tt.objects, tt.deletes, tt.bytes); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestStream(t *testing.T) {
	c := Constants{InFlightShare: 0.25, Envelope: 5}
	if got, want := c.Stream(2, 3, 4, 100), int64((2+3)*4*(25+5)); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
