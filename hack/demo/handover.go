package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// handOver says how to try things by hand. All goes on until Ctrl-C.
func (s *stage) handOver() {
	s.console.say("your turn: all of it runs on until Ctrl-C, and events are shown here. In another terminal:")
	s.console.println(fmt.Sprintf(`
  export KUBECONFIG=%[1]s
  kubectl create deployment hello --image=nginx --replicas=3
  kubectl scale deployment hello --replicas=1
  kubectl delete deployment hello

%[2]s

  curl %[3]s
  less %[4]s

  watched: %[5]s, those with %[6]s
`, s.cp.Kubeconfig(), s.bus.byHand(s.bin()), s.metricsURL, s.forwarderLog.Name(), watched, watchedLabels))
}

// deleteOnePod deletes one of the Deployment's.
func deleteOnePod(ctx context.Context, s *stage) error {
	list, err := s.cluster.in(pods).List(ctx, metav1.ListOptions{LabelSelector: "app=web", Limit: 1})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("there is none")
	}
	return s.cluster.delete(ctx, pods, list.Items[0].GetName())
}

// showLogs shows the end of the logs, which go with the folder.
func (s *stage) showLogs() {
	const tail = 25 // lines
	if s.forwarderLog != nil {
		text, err := os.ReadFile(s.forwarderLog.Name())
		s.console.println(s.console.paint(bold, "\nthe end of the forwarder's log:"))
		all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		s.console.println(string(bytes.Join(all[max(0, len(all)-tail):], []byte("\n"))))
		if err != nil {
			s.console.println(err.Error())
		}
	}
	if s.cp != nil {
		s.console.println(s.console.paint(bold, "\nthe end of the control plane's logs:"))
		s.console.println(s.cp.LogTail(5))
	}
}

// strike ends whatever was started, those first that need the others, and removes
// the folder.
func (s *stage) strike() error {
	var errs []error
	if s.subscriber != nil {
		s.subscriber.close()
	}
	for _, p := range []*child{s.tail, s.forwarder} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	if s.kubelet != nil {
		s.kubelet()
	}
	errs = append(errs, s.bus.stop())
	if s.cp != nil {
		errs = append(errs, s.cp.Stop())
	}
	if s.forwarderLog != nil {
		s.forwarderLog.Close()
	}
	if s.children != nil {
		errs = append(errs, s.children.remove())
	}
	return errors.Join(errs...)
}
