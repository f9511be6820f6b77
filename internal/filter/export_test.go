package filter

import "time"

// SetTimeout sets the timeout of evaluations, for machines that are busy with other tests.
func (f *Filter) SetTimeout(d time.Duration) { f.timeout = d }
