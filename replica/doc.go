// Package replica provides the objects of a Kubernetes cluster to client-go's informers, listers,
// controllers, and caches. It reads the objects from NATS or Kafka, where the forwarder keeps a
// copy of them, instead of from the API server.
//
//	bus, err := replica.NATS(ctx, replica.NATSOptions{URLs: []string{"nats://nats:4222"}})
//	...
//	pods := bus.ListerWatcher(corev1.SchemeGroupVersion.WithResource("pods"), replica.Options{Object: &corev1.Pod{}})
//	informer := cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
//
// What it guarantees:
//
//   - A list is the current state of the bus. It has each object whose last event is not a
//     delete or a deselection. The list waits until the bus has an event of the resource and
//     the first snapshot of the resource is complete. After the stream or topic was recreated
//     or purged, a ListerWatcher that has read a consistency point before waits for the next
//     point. The forwarder publishes that point when everything is on the bus again. The Logger
//     in the options receives the reason why a list waits.
//   - A watch shows all changes that follow the list, without a gap. After an interrupted
//     connection, it continues where it stopped.
//   - A watch ends with status 410 (Expired) when it may have missed a delete, so that a reflector
//     lists again. This happens if the stream or topic was recreated, lost its end, lost all its
//     messages, or was unreachable for several minutes. If KUBERELAY_DELETE_RETENTION is below five
//     minutes, a watch can miss a delete in a shorter interruption.
//   - A watch shows a DELETED event for an object that leaves the label selector. Like a watch on
//     the API server, it shows the last state that matched.
//   - A reader can wait for its own writes. [WaitForResourceVersion] blocks until the store of an
//     informer has every change up to a resourceVersion of the API server, and returns the version
//     and the time of the cluster state in the store. It uses the consistency points on the bus,
//     which the forwarder publishes unless KUBERELAY_RESOLVED_INTERVAL is 0.
//
// What differs from the API server:
//
//   - The resourceVersion of a list or bookmark is a consistency point, a position on the bus,
//     or both. Do not compare it with the resourceVersions of objects. It is valid only for the
//     ListerWatcher that returned it. Objects have the resourceVersions of the API server. A
//     watch does not show different objects in the order of their resourceVersions, because the
//     bus has no order between objects.
//   - If bookmarks are allowed, a bookmark follows each event and each consistency point. The
//     first bookmark follows the first point.
//   - After the stream or topic was recreated or purged, the first list of a ListerWatcher can have
//     only the objects that the forwarder has published again so far. To know that the store has
//     all objects, wait for any point with [WaitForResourceVersion]. If KUBERELAY_RESOLVED_INTERVAL
//     is 0, later lists can also be incomplete.
//   - Several quick changes of an object can arrive as one event.
//   - Objects have no managedFields and no last-applied annotation. The values of Secrets and
//     of hashed fields are the redacted values on the bus, and dropped fields are missing.
//   - An object that is too large for the bus has only apiVersion, kind, and metadata, and the
//     annotation [TruncatedAnnotation].
//   - A DELETED event has only the identity of the object if its final state is unknown.
//   - If the forwarder watches a resource in a new API version, an object keeps the earlier
//     version on the bus until it changes. Objects of a generic Go type
//     (*unstructured.Unstructured, *metav1.PartialObjectMetadata) have the version on the bus in
//     apiVersion, whatever the version of the ListerWatcher is.
//   - If an object can't be decoded, or if its version on the bus differs from the version of
//     its Go type, the list fails, or the watch ends. A delete of such an object does not end the
//     watch. Its DELETED event has the last state that matched the label selector, or only the
//     identity of the object.
package replica
