package simulate

// selection is how the configuration selects objects.
type selection uint8

const (
	all      selection = iota
	byLabel            // the API server applies a label selector
	byFilter           // the forwarder applies a filter
)

// config is the configuration of the forwarders.
type config struct {
	selection selection
	scope     scope
	form
	publishDeselected bool
	change            bool // events include the previous state
}

// configurations is the number of configurations that have the same scope.
const configurations = 24

// configOf returns the configuration with a number. Numbers are less than configurations if the scope can't
// change, and less than configurations times scopes otherwise.
func configOf(number int) config {
	c := config{selection: selection(number % 3), publishDeselected: number/6%2 == 1, change: number/12%2 == 1, scope: scope(number / configurations)}
	c.project = number/3%2 == 1
	return c
}

// number is the inverse of configOf.
func (c config) number() int {
	bit := map[bool]int{true: 1}
	return int(c.selection) + 3*bit[c.project] + 6*bit[c.publishDeselected] + 12*bit[c.change] + configurations*int(c.scope)
}
