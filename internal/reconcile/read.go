package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"

	"github.com/kuberelay/kuberelay/internal/event/revision"
)

// Every read in this file is consistent: no get or list sets a resourceVersion, so the response is
// at least as new as etcd at the time of the request.

const (
	readers   = 16  // concurrent reads
	maxFailed = 16  // number of internal errors that end the reads
	listPage  = 500 // objects in one page

	// readTimeout limits each read. Without the limit, an API server that stops responding would
	// delay every comparison until the client closes the dead connection.
	readTimeout = 10 * time.Second
)

// readObjects reads the objects for which the bus and an informer contradict each other.
func (p *pass) readObjects(ctx context.Context) error {
	answers, behind := make([]readResult, len(p.objects)), make([]bool, len(p.objects))
	for n, of := range p.objects {
		// Check this before the read. If the informer is not behind now, its view after the read
		// includes every change up to the version on the bus.
		behind[n] = of.acked.Live() && of.acked.Epoch == p.epoch && revision.IsEarlier(p.Informers.DescribeObject(of.key).Version, of.acked.ResourceVersion)
	}
	refused := make([]error, len(p.objects))
	var failed atomic.Int32
	err := p.Each(ctx, len(p.objects), func(ctx context.Context, n int) (err error) {
		answers[n], err = p.readObject(ctx, p.objects[n], behind[n])
		// If access is denied in one namespace, or an object cannot be converted, other reads might still
		// succeed. But if the API server cannot reach etcd, every read fails with an internal error, so
		// maxFailed internal errors end the reads.
		if apierrors.IsForbidden(err) || apierrors.IsInternalError(err) && failed.Add(1) < maxFailed {
			refused[n], err = err, nil
		}
		return err
	})
	err = cmp.Or(err, cmp.Or(refused...))
	unseen := false
	for n, of := range p.objects {
		v := p.Informers.DescribeObject(of.key)
		decision := answers[n].conclude(of.acked, v, p.epoch, p.PublishDeselected)
		unseen = unseen || answers[n].finding == isUnseen
		of.absentAt, of.unselected = answers[n].absentAt(), answers[n].uid != "" && (v.Live == nil || v.Live.Unselected)
		if v.Covered && v.Synced && v.Live != nil && answers[n].finding != isUnknown && answers[n].finding != isUnseen {
			p.answers.record(of.key, questionOf(v.Live, of.acked, p.epoch), p.Now())
		}
		p.apply(decision, of, &p.found)
	}
	if unseen && err == nil {
		err = errBehind
	}
	return err
}

// eachConcurrently is the default of [Config.Each].
func eachConcurrently(ctx context.Context, n int, read func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return read(ctx, i)
		})
	}
	return group.Wait()
}

// readObject reads one object. behind means that the informer has not reached the version on the
// bus.
func (p *pass) readObject(ctx context.Context, of pair, behind bool) (readResult, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client := p.client(of.key.Namespace)
	o, err := client.Get(ctx, of.key.Name, metav1.GetOptions{})
	absentAt, isRemoved := "", false
	if apierrors.IsForbidden(err) {
		if absentAt, isRemoved = p.isRemoved(ctx, of.key.Namespace); isRemoved {
			err = apierrors.NewNotFound(of.key.GroupResource(), of.key.Name)
		}
	}
	answer, err := classify(o, err, of.acked, p.epoch)
	answer.listed = absentAt
	if err == nil && !isRemoved && (behind && answer.finding == isGone || of.acked.Foreign && answer.isAbsent()) {
		answer, err = p.listObject(ctx, client, of, answer)
		if behind && answer.finding == isGone && !revision.IsEarlier(answer.listed, of.acked.ResourceVersion) {
			answer.finding = isUnseen // otherwise the history was rolled back, and the watch might never reach the version on the bus
		}
	}
	if err != nil {
		return readResult{}, fmt.Errorf("read %s from the API server: %w", of.key, err)
	}
	return answer, nil
}

// listObject lists the object after a read. It returns the result of the read or, if the list contains
// the object, the result for that object. In both cases, it adds the version of the list.
func (p *pass) listObject(ctx context.Context, client dynamic.ResourceInterface, of pair, read readResult) (readResult, error) {
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: named(of.key.Name), Limit: 1})
	if err != nil {
		return readResult{}, err
	}
	for _, o := range list.Items { // an aggregated API server might ignore the selector
		if o.GetName() == of.key.Name {
			read, err = classify(&o, nil, of.acked, p.epoch)
		}
	}
	read.listed = list.GetResourceVersion()
	return read, err
}

// named returns the field selector for an object's name.
func named(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// listLeaving lists each namespace in leaving to decide which deselected objects still exist.
func (p *pass) listLeaving(ctx context.Context) (failed error) {
	for _, namespace := range slices.Sorted(maps.Keys(p.leaving)) {
		uids, listErr := p.listUIDs(ctx, namespace)
		for _, of := range p.leaving[namespace] {
			decision, err := decideLeaving(of, uids, listErr)
			if err != nil {
				failed = errors.Join(failed, err)
				break
			}
			p.apply(decision, of, &p.found)
		}
	}
	return failed
}

// listUIDs lists the objects in a namespace and returns their UIDs by name.
func (p *pass) listUIDs(ctx context.Context, namespace string) (map[string]string, error) {
	uids := map[string]string{}
	for next := ""; ; {
		page, cancel := context.WithTimeout(ctx, readTimeout)
		list, err := p.client(namespace).List(page, metav1.ListOptions{Limit: listPage, Continue: next})
		cancel()
		if err != nil {
			return nil, err
		}
		for _, u := range list.Items {
			uids[u.GetName()] = string(u.GetUID())
		}
		if next = list.GetContinue(); next == "" {
			return uids, nil
		}
	}
}

func (p *pass) client(namespace string) dynamic.ResourceInterface {
	r := p.Reads.Resource(p.resource.GroupVersionResource())
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}
