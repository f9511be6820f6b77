package simulate

import "fmt"

// kind is a kind of action.
type kind uint8

const (
	// The user of the cluster
	createObject kind = iota
	updateObject
	changeNoise
	toggleLabel
	deleteObject
	createSpace
	toggleSpace
	deleteSpace
	toggleRole
	redefine
	forgeEvent
	backUp
	restore

	// The watch of a process
	connect
	show
	bookmark
	index
	notify
	breakWatch
	expire
	turnEpoch
	resync
	showSpace
	align
	race

	// A process
	startProcess
	lead
	loseLease
	forget
	killProcess
	reconfigure
	freeze
	wake
	work
	proceed // a coroutine receives the response to its request
	fail    // a coroutine receives an error
	reconcileDue
	purgeDue
	look

	// The bus
	store
	storeLate
	loseRequest
	answer
	loseAnswer
	timeOut
	disconnect
	stopBus
	startBus
	storeEntry
	compact
	recreate
	probe

	// The clock
	tick
	passDay

	endFaults

	kinds
)

// kindInfo describes a kind of action. The weight determines how often the kind is chosen from the possible
// actions.
type kindInfo struct {
	name   string
	weight int
	fault  bool // not needed for progress: it stops when the faults end
}

var infoOf = [kinds]kindInfo{
	createObject: {"the user creates %s", 3, true},
	updateObject: {"the user updates %s", 4, true},
	changeNoise:  {"the user changes an unpublished field of %s", 2, true},
	toggleLabel:  {"the user changes the label of %s", 3, true},
	deleteObject: {"the user deletes %s", 3, true},
	createSpace:  {"the user creates the namespace", 6, true},
	toggleSpace:  {"the user changes the label of the namespace", 2, true},
	deleteSpace:  {"the user deletes the namespace", 2, true},
	toggleRole:   {"the user creates or deletes the Role", 2, true},
	redefine:     {"a new default changes the content of all objects", 1, true},
	forgeEvent:   {"a foreign writer publishes about %s", 1, true},
	backUp:       {"etcd is backed up", 1, true},
	restore:      {"etcd is restored from the backup", 1, true},

	connect:    {"the watch connects", 12, false},
	show:       {"the watch shows the next change", 12, false},
	bookmark:   {"the watch shows a bookmark", 1, false},
	index:      {"the next change enters the indexer", 12, false},
	notify:     {"the handler is notified", 12, false},
	breakWatch: {"the watch breaks", 2, true},
	expire:     {"the API server forgets the version of the watch", 1, true},
	turnEpoch:  {"the informers turn to the new epoch", 12, false},
	resync:     {"a resync enqueues all objects", 1, true},
	showSpace:  {"the watch shows the namespace", 6, false},
	align:      {"the informers follow the namespace", 12, false},
	race:       {"the informers overtake the next decision", 1, true},

	startProcess: {"a forwarder starts", 2, true},
	lead:         {"the standby becomes the leader", 8, false},
	loseLease:    {"the leader loses its lease", 2, true},
	forget:       {"the standby forgets early changes", 2, true},
	killProcess:  {"the forwarder is killed", 2, true},
	reconfigure:  {"the configuration changes", 1, true},
	freeze:       {"the forwarder is frozen", 2, true},
	wake:         {"the forwarder wakes up", 6, false},
	work:         {"a worker takes %s", 16, false},
	proceed:      {"%s continues", 16, false},
	fail:         {"%s gets an error", 1, true},
	reconcileDue: {"the reconciler begins", 12, false},
	purgeDue:     {"the retention begins", 1, true},
	look:         {"the resolver looks", 4, false},

	store:       {"the bus gets the request about %s", 16, false},
	storeLate:   {"a request about %s whose sender no longer waits reaches the bus", 4, true},
	loseRequest: {"the request about %s is lost", 1, true},
	answer:      {"the answer about %s arrives", 16, false},
	loseAnswer:  {"the answer about %s is lost", 1, true},
	timeOut:     {"the wait for the answer about %s ends", 1, false},
	disconnect:  {"the connection to the bus breaks", 1, true},
	stopBus:     {"the bus stops", 1, true},
	startBus:    {"the bus starts", 8, false},
	storeEntry:  {"the checkpoint topic gets the entry of %s", 12, false},
	compact:     {"the topics are compacted", 1, true},
	recreate:    {"a topic is deleted and recreated", 1, true},
	probe:       {"the session looks for another writer", 1, false},

	tick:    {"time passes", 3, false},
	passDay: {"a day passes", 2, true},

	endFaults: {"the faults end", 0, true},
}

// action is one step of a history. Its fields stay valid if other steps of the history are dropped.
type action struct {
	kind   kind
	slot   int8  // of the process, -1 for none
	object int8  // an object, a coroutine or a partition of the checkpoint topic, -1 for none
	arg    uint8 // the variant, less than the number of variants
}

// offer is a possible action, with its number of variants.
type offer struct {
	action
	variants int
}

const (
	none = -1

	// IDs of the coroutines that don't belong to a single object
	loading    = 100
	reconciler = 101
	retention  = 102
	resolver   = 103
	takingOver = 104
)

var objectNames = [...]string{"a", "b", "c"}

func (a action) String() string {
	what := ""
	switch {
	case a.object == loading:
		what = "the load of the checkpoint"
	case a.object == reconciler:
		what = "the reconciler"
	case a.object == retention:
		what = "the retention"
	case a.object == resolver:
		what = "the resolver"
	case a.object == takingOver:
		what = "the takeover"
	case a.object >= 0 && (a.kind == proceed || a.kind == fail):
		what = "the read of the bus for " + objectNames[a.object]
	case a.object >= 0:
		what = objectNames[a.object]
	}
	text := infoOf[a.kind].name
	if what != "" {
		text = fmt.Sprintf(text, what)
	}
	if a.slot >= 0 {
		text = fmt.Sprintf("forwarder %d: %s", a.slot+1, text)
	}
	if a.arg > 0 {
		text = fmt.Sprintf("%s (variant %d)", text, a.arg)
	}
	return text
}
