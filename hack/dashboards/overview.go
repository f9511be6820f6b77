package main

import "strings"

// overview returns the dashboard for all forwarders that Prometheus scrapes.
func overview() dashboard {
	const (
		who  = "cluster, namespace, pod"
		name = "{{cluster}} {{namespace}}/{{pod}}"
	)
	const of = `cluster=~"$cluster",namespace=~"$namespace"`
	in := strings.NewReplacer("{of", "{"+of, `",of`, `",`+of).Replace
	return assemble("kuberelay-overview", "Kuberelay / Overview", "All forwarders: whether each copy is right, how old it is, and how much each forwarder does.", variables(),
		row("Is every copy right?",
			stat("Forwarders", "", "Forwarders that Prometheus scrapes.", 3, nil, query{in("count(kuberelay_build_info{of})"), ""}),
			stat("Leading", "", "Forwarders that may write. Each installation needs one.", 3, nil, query{in("sum(kuberelay_leader{of})"), ""}),
			stat("Firing alerts", "", "Firing alerts of the chart. Each alert's annotation runbook_url links to the steps to take.", 3, levels(1, 1),
				query{in(`count(ALERTS{of,alertname=~"Kuberelay.*",alertstate="firing"}) or vector(0)`), ""}),
			stat("Degraded resources", "", "Resources that can't be watched. Their objects stay on the bus in their last state.", 3, levels(1, 10),
				query{in(`count(kuberelay_informer_state{of,state="degraded"}) or vector(0)`), ""}),
			stat("Unpublished objects", "short", "Objects whose current state the bus has not acknowledged. 0 means that every known change is published.", 4, levels(1, 10_000),
				query{in("sum(kuberelay_dirty_objects{of})"), ""}),
			stat("Oldest unpublished change", "s", "Age of the oldest change that the bus has not acknowledged.", 4, levels(60, 300),
				query{in("max(kuberelay_oldest_unsent_change_seconds{of})"), ""}),
			stat("Oldest consistency point", "s", "Time since the bus was last known to have every change, for the resource that is furthest behind. About a minute is normal.", 4, levels(600, 900),
				query{in("max(kuberelay_resolved_age_seconds{of})"), ""}),
			table("Each forwarder", "One row for each forwarder. A standby publishes nothing, so it has no dirty objects and no consistency points.", 8, []string{"cluster", "namespace", "pod", "version"},
				column{"", "", in("max by (" + who + ", version) (kuberelay_build_info{of})"), nil, false},
				column{"Leading", "", in("max by (" + who + ") (kuberelay_leader{of})"), nil, true},
				column{"Bus", "", in(`max by (` + who + `) ({__name__=~"kuberelay_nats_connected|kuberelay_kafka_ready",of})`), nil, true},
				column{"Resources", "", in("count by (" + who + ") (kuberelay_informer_state{of})"), nil, false},
				column{"Degraded", "", in(`count by (` + who + `) (kuberelay_informer_state{of,state="degraded"})`), levels(1, 10), false},
				column{"Objects", "short", in("sum by (" + who + ") (kuberelay_informer_objects{of})"), nil, false},
				column{"Dirty", "short", in("max by (" + who + ") (kuberelay_dirty_objects{of})"), levels(1, 10_000), false},
				column{"Oldest change", "s", in("max by (" + who + ") (kuberelay_oldest_unsent_change_seconds{of})"), levels(60, 300), false},
				column{"Consistent", "s", in("max by (" + who + ") (kuberelay_resolved_age_seconds{of})"), levels(600, 900), false},
				column{"Memory", "percentunit", in("max by (" + who + ") (" + memoryShare + ")"), levels(0.8, 0.95), false},
			).linked("Pod", "kuberelay-forwarder", "cluster", "namespace", "pod"),
		),
		row("How current is it?",
			graph("End-to-end lag, 99%", "s", "The 99% quantile of the time from the write at the API server to the acknowledgement of the bus. The API server records whole seconds, so the value is up to 1 s too high.",
				query{in(quantile("0.99", "kuberelay_end_to_end_lag_seconds_bucket{of}", "cluster, namespace")), "{{cluster}} {{namespace}}"}).limited(60, 300),
			graph("Age of the oldest unpublished change", "s", "The age grows while the bus is unavailable, is full, or refuses an object.", query{in("max by (" + who + ") (kuberelay_oldest_unsent_change_seconds{of})"), name}).limited(60, 300),
			graph("Age of the oldest consistency point", "s", "For the resource that is furthest behind. Bookmarks from the API server reset the age about once a minute.",
				query{in("max by (" + who + ") (kuberelay_resolved_age_seconds{of})"), name}).limited(600, 900),
		),
		row("How much does it do?",
			graph("Changes seen", "cps", "Changes that the watches received.", query{in(rate("kuberelay_informer_watch_events_total{of}", who)), name}),
			graph("Events published", "cps", "Events that the bus acknowledged. Several quick changes of an object can become one event.", query{in(rate("kuberelay_events_published_total{of}", who)), name}),
			graph("Bytes published", "Bps", "Data of acknowledged events, before compression.", query{in(rate("kuberelay_published_bytes_total{of}", who)), name}),
			graph("Objects", "short", "Objects in the caches. They determine how much memory the forwarder needs.", query{in("sum by (" + who + ") (kuberelay_informer_objects{of})"), name}),
			graph("CPU", "short", "Cores in use.", query{in(rate("process_cpu_seconds_total{of}", who)), name}),
			graph("Memory, share of the limit", "percentunit", "Memory of the Go runtime as a share of GOMEMLIMIT, which is 90% of the container's memory limit.", query{in("max by (" + who + ") (" + memoryShare + ")"), name}).limited(0.8, 0.95),
		),
		row("What goes wrong?",
			graph("Publishes that were not stored", "cps", "By result. The forwarder retries each of them. A steady rate means that the bus refuses something.",
				query{in(rate(`{__name__=~"kuberelay_(nats|kafka)_publishes_total",of,result!~"stored|already_stored"}`, "result")), "{{result}}"}),
			graph("Retries", "cps", "Keys put into backoff after a failure.", query{in(rate("workqueue_retries_total{of}", who)), name}),
			graph("Resources by state", "short", "Degraded resources can't be watched.", query{in("sum by (state) (kuberelay_informer_state{of})"), "{{state}}"}),
			graph("API server requests that failed", "cps", "Requests by status code. Code <error> is a request without a response.",
				query{in(rate(`rest_client_requests_total{of,code!~"2.."}`, "code") + " or " + rate(`rest_client_requests_total{of}`, "code") + " * 0"), "{{code}}"}),
			graph("Foreign and invalid messages", "short", "Messages of other writers in the interval. Both counts stay 0 if only the forwarder may write to the bus.",
				query{in("sum(increase(kuberelay_foreign_events_total{of}[$__rate_interval]))"), "foreign events"},
				query{in("sum by (reason) (increase(kuberelay_invalid_messages_total{of}[$__rate_interval]))"), "invalid: {{reason}}"}),
			graph("Restarts", "short", "Starts of the process in the last 30 minutes.", query{in("max by (" + who + ") (changes(process_start_time_seconds{of}[30m]))"), name}),
		),
	)
}

// memoryShare is the memory of the Go runtime as a share of its limit.
const memoryShare = "(go_memstats_sys_bytes{of} - go_memstats_heap_released_bytes{of}) / go_gc_gomemlimit_bytes{of}"
