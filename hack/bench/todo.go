package main

import "context"

func (s *stage) benchLatency(context.Context, int) error { return nil }
func (s *stage) benchRate(context.Context, int) error    { return nil }
func (s *stage) benchLive(context.Context, int) error    { return nil }
func (s *stage) benchPublishing(context.Context) error   { return nil }
