package natsserver

import "time"

// The pause before a restart doubles while the server fails soon after its start, because each restart
// disconnects the readers.
const (
	restartDelay    = 10 * time.Second
	maxRestartDelay = 5 * time.Minute
)

// supervise restarts the server after a failed write, for example to a full disk, because the server
// then refuses all messages of the stream until a restart. supervise returns when the server has been
// told to stop and has stopped.
func (s *Server) supervise() {
	defer close(s.down)
	defer s.unlock()
	delay, began := time.Duration(0), time.Now()
	for {
		select {
		case <-s.running.Done():
		case <-s.log.broken:
			delay = s.opts.nextDelay(delay, time.Since(began))
			select {
			case <-s.running.Done():
			case <-time.After(delay):
			}
		}
		end(s.current())
		if s.running.Err() != nil {
			return
		}
		s.opts.Logger.Warn("restarting the built-in NATS server")
		s.log.reset()
		if err := s.launch(s.running); err != nil && s.running.Err() == nil {
			s.opts.Logger.Error("cannot restart the built-in NATS server, retrying", "err", err)
			s.log.fail()
		}
		began = time.Now()
	}
}

// nextDelay returns the pause before a restart. last is the pause before the previous restart, or 0 if
// there was none. ran is the time since then.
func (o Options) nextDelay(last, ran time.Duration) time.Duration {
	if last == 0 || ran > maxRestartDelay {
		return o.restartDelay
	}
	return min(2*last, maxRestartDelay)
}
