// Package ktesting stands for k8s.io/ktesting, as far as the tables of the allocator's tests need it. Test-only.
package ktesting

import (
	"context"
	"testing"
	"time"
)

// TContext ignores what a test asks of it: the tables are read, and no test runs.
type TContext struct{ context.Context }

// Assertion accepts everything.
type Assertion struct{}

func (Assertion) To(...any) {}

func Init(*testing.T) TContext { return TContext{context.Background()} }

func SetDefaultVerbosity(int) {}

func (c TContext) Run(string, func(TContext))                 {}
func (c TContext) Logf(string, ...any)                        {}
func (c TContext) Skipf(string, ...any)                       {}
func (c TContext) ExpectNoError(error, ...any)                {}
func (c TContext) Expect(...any) Assertion                    { return Assertion{} }
func (c TContext) Require(...any) Assertion                   { return Assertion{} }
func (c TContext) Cancel(string)                              {}
func (c TContext) WithCancel() TContext                       { return c }
func (c TContext) WithTimeout(time.Duration, string) TContext { return c }
func (c TContext) WithDeadline(time.Time, string) TContext    { return c }
