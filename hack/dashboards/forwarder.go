package main

import "strings"

// forwarder returns the dashboard for one forwarder and its resources.
func forwarder() dashboard {
	const of = `cluster=~"$cluster",namespace=~"$namespace",pod="$pod"`
	in := strings.NewReplacer("{of", "{"+of, `",of`, `",`+of).Replace
	bus := func(metric string) string { return `{__name__=~"kuberelay_(nats|kafka)_` + metric + `",of` }
	all := func(of []query) []query {
		for i := range of {
			of[i].expr = in(of[i].expr)
		}
		return of
	}
	one := func(expr, legend string) query { return query{in(expr), legend} }
	resource := "{{resource}}"
	return assemble("kuberelay-forwarder", "Kuberelay / Forwarder", "One forwarder: its resources, queue, bus, and requests to the API server.",
		variables(ask("pod", "Pod", `label_values(kuberelay_build_info{cluster=~"$cluster",namespace=~"$namespace"}, pod)`)),
		row("Is the copy right?",
			stat("Version", "", "The version of the forwarder.", 4, nil, one("max by (version) (kuberelay_build_info{of})", "{{version}}")).named(),
			stat("Leading", "", "Whether this forwarder may write. A standby may not.", 3, nil, one("max(kuberelay_leader{of})", "")).yesNo("text"),
			stat("Bus", "", "Whether the bus responds.", 3, nil, one(`max({__name__=~"kuberelay_nats_connected|kuberelay_kafka_ready",of})`, "")).yesNo("red"),
			stat("Degraded resources", "", "Resources that can't be watched. The command forwarder resources shows why.", 3, levels(1, 10), one(`count(kuberelay_informer_state{of,state="degraded"}) or vector(0)`, "")),
			stat("Unpublished objects", "short", "Objects whose current state or delete the bus has not acknowledged.", 3, levels(1, 10_000), one("max(kuberelay_dirty_objects{of})", "")),
			stat("Oldest unpublished change", "s", "Age of the oldest change that the bus has not acknowledged.", 4, levels(60, 300), one("max(kuberelay_oldest_unsent_change_seconds{of})", "")),
			stat("Oldest consistency point", "s", "Time since the bus was last known to have every change.", 4, levels(600, 900), one("max(kuberelay_resolved_age_seconds{of})", "")),
			table("Resources", "One row for each watched resource. The reason says why a resource is degraded.", 9, []string{"resource", "state", "reason"},
				column{"", "", in("max by (resource, state, reason) (kuberelay_informer_state{of})"), nil, false},
				column{"In this state", "s", in("time() - max by (resource) (kuberelay_informer_state_since_timestamp_seconds{of})"), nil, false},
				column{"Objects", "short", in("max by (resource) (kuberelay_informer_objects{of})"), nil, false},
				column{"Changes/s", "cps", in(rate("kuberelay_informer_watch_events_total{of}", "resource")), nil, false},
				column{"Events/s", "cps", in(rate("kuberelay_events_published_total{of}", "resource")), nil, false},
				column{"Bytes/s", "Bps", in(rate("kuberelay_published_bytes_total{of}", "resource")), nil, false},
				column{"Consistent", "s", in("max by (resource) (kuberelay_resolved_age_seconds{of})"), levels(600, 900), false},
			),
		),
		row("How long does a change take?",
			graph("End to end", "s", "From the write at the API server to the acknowledgement of the bus. The API server records whole seconds, so the value is up to 1 s too high.", all(quantiles("kuberelay_end_to_end_lag_seconds_bucket{of}"))...).limited(60, 300),
			graph("Forwarder and bus", "s", "From the observation of a change to the acknowledgement of its event.", all(quantiles("kuberelay_event_lag_seconds_bucket{of}"))...),
			graph("Acknowledgement of the bus", "s", "From the publish of a message to its acknowledgement.", all(quantiles(bus("ack_duration_seconds_bucket")+"}"))...),
		),
		row("What is published?",
			graph("Events by type", "cps", "Events that the bus acknowledged.", one(rate("kuberelay_events_published_total{of}", "type"), "{{type}}")),
			graph("Events by resource", "cps", "The ten resources with the most events.", one("topk(10, "+rate("kuberelay_events_published_total{of}", "resource")+")", resource)),
			graph("Bytes by resource", "Bps", "The ten resources with the most data, before compression.", one("topk(10, "+rate("kuberelay_published_bytes_total{of}", "resource")+")", resource)),
			graph("Publishes by result", "cps", "Every result except stored and already_stored is retried.", one(rate(bus("publishes_total")+"}", "result"), "{{result}}")),
			graph("Decisions by reason", "cps", "Processed keys, by the reason of the decision. While nothing changes, only unchanged grows, at each resync.", one(rate("kuberelay_decisions_total{of}", "reason"), "{{reason}}")),
			graph("Unusual events", "short", "Counts in the interval. An occasional conflict is normal. All other counts should stay 0.",
				one("sum(increase(kuberelay_publish_conflicts_total{of}[$__rate_interval]))", "conflicts"),
				one("sum(increase(kuberelay_foreign_events_total{of}[$__rate_interval]))", "foreign events"),
				one("sum(increase(kuberelay_invalid_messages_total{of}[$__rate_interval]))", "invalid messages"),
				one("sum(increase(kuberelay_events_truncated_total{of}[$__rate_interval]))", "truncated events"),
				one("sum(increase(kuberelay_deletes_purged_early_total{of}[$__rate_interval]))", "deletes purged early"),
				one("sum(increase(kuberelay_bus_lost_total{of}[$__rate_interval]))", "events lost by the bus")),
		),
		row("What waits?",
			graph("Keys", "short", "Dirty objects, keys that wait for a worker, and messages that await an acknowledgement.",
				one("max(kuberelay_dirty_objects{of})", "dirty"), one("sum(workqueue_depth{of})", "queued"), one("sum("+bus("in_flight")+"})", "in flight")),
			graph("Time in the queue", "s", "How long keys wait for a worker. If the wait grows, the bus is slow.", all(quantiles("workqueue_queue_duration_seconds_bucket{of}"))...),
			graph("Retries", "cps", "Keys put into backoff after a failure.", one(rate("workqueue_retries_total{of}", "name"), "{{name}}")),
		),
		row("What is watched?",
			graph("Changes seen by resource", "cps", "The ten resources with the most changes.", one("topk(10, "+rate("kuberelay_informer_watch_events_total{of}", "resource")+")", resource)),
			graph("Lists and watches", "cps", "Requests that begin a list or a watch. The API server ends a watch after 5 to 10 minutes, so a much higher rate means that watches fail.",
				one("sum(rate(kuberelay_informer_lists_total{of}[$__rate_interval]))", "lists"), one("sum(rate(kuberelay_informer_watches_total{of}[$__rate_interval]))", "watches")),
			graph("Objects by resource", "short", "The ten resources with the most objects in the cache.", one("topk(10, max by (resource) (kuberelay_informer_objects{of}))", resource)),
			graph("Requests by code", "cps", "Requests to the API server. 401 and 403 indicate a problem with credentials or RBAC. 429 means that the API server throttles the forwarder.", one(rate("rest_client_requests_total{of}", "code"), "{{code}}")),
			graph("Duration of requests, 99%", "s", "By HTTP method. Watches are excluded.", one(quantile("0.99", "rest_client_request_duration_seconds_bucket{of}", "verb"), "{{verb}}")),
			graph("Discovery", "cps", "Requests by result.", one(rate("kuberelay_discovery_total{of}", "result"), "{{result}}")),
		),
		row("The process",
			graph("CPU", "short", "Cores in use.", one("max(rate(process_cpu_seconds_total{of}[$__rate_interval]))", "cores")),
			graph("Memory", "bytes", "Resident memory, memory of the Go runtime, and the runtime's limit (GOMEMLIMIT), which is 90% of the container's memory limit.",
				one("max(process_resident_memory_bytes{of})", "resident"), one("max(go_memstats_sys_bytes{of} - go_memstats_heap_released_bytes{of})", "Go runtime"),
				one("max(go_gc_gomemlimit_bytes{of} < 1e15)", "limit")),
			graph("Goroutines", "short", "The number of goroutines grows with the number of resources, not with the number of objects.", one("max(go_goroutines{of})", "goroutines")),
		),
	)
}
