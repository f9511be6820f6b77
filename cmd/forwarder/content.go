package main

import (
	"github.com/kuberelay/kuberelay/internal/config"
	"github.com/kuberelay/kuberelay/internal/filter"
	"github.com/kuberelay/kuberelay/internal/projection"
)

// contentChecks find what is wrong with the variables that say what is sent.
func contentChecks() []config.Check {
	return []config.Check{
		{Name: "KUBERELAY_FILTER", Run: func(cfg config.Config) error {
			_, err := filter.Compile(cfg.Content.Filter)
			return err
		}},
		{Name: "KUBERELAY_DROP_FIELDS", Run: func(cfg config.Config) error {
			_, err := projection.Parse(cfg.Content.DropFields)
			return err
		}},
	}
}
