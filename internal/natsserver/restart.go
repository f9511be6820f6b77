package natsserver

import "time"

// The pause before a restart doubles while the server fails soon after its start, because each restart
// disconnects the readers.
const (
	restartDelay    = 10 * time.Second
	maxRestartDelay = 5 * time.Minute
)

// supervise starts the server again after a failed write, for example when the disk was full: the
// server then refuses all messages of the stream until it starts again. supervise returns when the
// server has been told to stop and has stopped.
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
		s.opts.Logger.Warn("built-in NATS server starts again")
		s.log.reset()
		if err := s.launch(s.running); err != nil && s.running.Err() == nil {
			s.opts.Logger.Error("built-in NATS server cannot start again, retrying", "err", err)
			s.log.fail()
		}
		began = time.Now()
	}
}

// nextDelay returns the pause before a restart, from the last pause and the time since the restart after it.
func (o Options) nextDelay(last, ran time.Duration) time.Duration {
	if last == 0 || ran > maxRestartDelay {
		return o.restartDelay
	}
	return min(2*last, maxRestartDelay)
}
