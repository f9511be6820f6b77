// Package replica is an informer over the bus: it gives client-go's informers, listers,
// controllers and caches the objects of a Kubernetes cluster from NATS or Kafka, where the
// forwarder keeps a copy of them, instead of from the API server.
//
//	bus, err := replica.NATS(ctx, replica.NATSOptions{URLs: []string{"nats://nats:4222"}})
//	...
//	pods := bus.ListerWatcher(corev1.SchemeGroupVersion.WithResource("pods"), replica.Options{Object: &corev1.Pod{}})
//	informer := cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
//
// What it guarantees:
//
//   - A list is the present state of the bus: each object whose last event is not a delete or
//     a deselection. While the first snapshot of the resource is under way, or as long as the
//     bus has nothing of the resource, the list waits. After the stream or topic was recreated
//     or purged, a ListerWatcher that has read a consistency point before waits for the next
//     one, which the forwarder publishes when everything is on the bus again. The Logger in the
//     options is told what a list waits for.
//   - A watch shows what follows the list, without a gap. It continues where it stopped when
//     the connection to the bus was lost.
//   - A watch ends with status 410 (Expired), so that a reflector lists again, when it can
//     have missed a delete: the stream or topic was recreated, lost its end, lost everything
//     that it held, or was unreachable for several minutes.
//   - A watch shows a DELETED event for an object that leaves the label selector, as that of
//     the API server does: with its last state that matched.
//   - A reader can wait for its own writes: [WaitForResourceVersion] blocks until the store of
//     an informer has every change up to a version of the API server, and tells which state
//     of the cluster the store has, and of when. It reads the consistency points on the bus,
//     which the forwarder publishes unless KUBERELAY_RESOLVED_INTERVAL is 0.
//
// What differs from the API server:
//
//   - The resourceVersion of a list or bookmark is a consistency point and a position on the
//     bus. Do not compare it with those of objects. It is valid only for the ListerWatcher
//     that returned it. Objects have the resourceVersions of the API server. An object can
//     have a higher one than others that were changed after it: the bus has no order between
//     objects.
//   - If bookmarks are allowed, one follows each event and each consistency point, once there
//     is a point.
//   - After the stream or topic was recreated or purged, the first list of a ListerWatcher can
//     return the objects that the forwarder has published again so far. Wait for any point with
//     [WaitForResourceVersion] to know that the store has all. If KUBERELAY_RESOLVED_INTERVAL
//     is 0, so can later lists.
//   - Quick changes of an object can arrive as one.
//   - Objects have no managedFields and no last-applied annotation. Values of Secrets, and
//     what the forwarder hashes or drops, are as on the bus.
//   - An object that is too large for the bus has only apiVersion, kind and metadata, and the
//     annotation [TruncatedAnnotation].
//   - A DELETED event whose final state nobody knows has only the identity of the object.
//   - If the forwarder watches a resource in a new version of its API, an object keeps the
//     earlier version on the bus until it changes. Objects without a Go type of their own
//     (*unstructured.Unstructured, *metav1.PartialObjectMetadata) come in the version that each
//     has on the bus, as apiVersion says, whatever the version in the ListerWatcher is.
//   - An object that cannot be decoded, or that the bus has in another version than that of its
//     Go type, fails the list, and ends the watch. A delete does not: the DELETED event then has
//     the last state that matched the label selector, or the identity of the object.
package replica
