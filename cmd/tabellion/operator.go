package main

import (
	"context"
	"errors"
	"time"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/internal/transport/control"
)

// operatorCall calls an operator operation.
type operatorCall func(operation string, in ...canonjson.Member) (canonjson.Value, error)

// operating is operate for several calls in a row: the store is opened once, or its owner asked each time.
func operating(env *Env, cfg *tabellion.Config, do func(operatorCall) error) error {
	who, joined := caller(cfg), false
	s, err := openOr(env.Ctx, cfg, logger(env, quiet(cfg)), func() error {
		_, err := control.Ask(env.Ctx, cfg.Data)
		joined = err == nil
		return err
	})
	if err != nil {
		return err
	}
	call := func(operation string, in canonjson.Value) (canonjson.Value, error) {
		return s.Call(env.Ctx, who.Subject, who.Roles, operation, in)
	}
	if joined {
		call = func(operation string, in canonjson.Value) (canonjson.Value, error) {
			return control.Run(env.Ctx, cfg.Data, who, operation, in)
		}
	}
	err = do(func(operation string, in ...canonjson.Member) (canonjson.Value, error) {
		out, err := patiently(env.Ctx, func() (canonjson.Value, error) { return call(operation, canonjson.Object(in...)) })
		return out, missingRight(err, who, operation)
	})
	if joined {
		return err
	}
	return errors.Join(err, s.Close(env.Ctx))
}

// patiently repeats a call that is refused for coming too soon after others, when it may come again.
func patiently(ctx context.Context, call func() (canonjson.Value, error)) (canonjson.Value, error) {
	for {
		out, err := call()
		f := fault.As(err)
		if f == nil || f.Code != fault.RateLimited && f.Code != fault.Overloaded {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(max(f.RetryAfter, lockRetry)):
		}
	}
}

// pages calls an operator operation until the last page, and gives all items and the last answer.
func pages(env *Env, cfg *tabellion.Config, operation, list string, in ...canonjson.Member) (items []canonjson.Value, out canonjson.Value, err error) {
	err = operating(env, cfg, func(call operatorCall) (err error) {
		for after := ""; ; {
			if out, err = call(operation, append(append([]canonjson.Member{}, in...), optional("after", after))...); err != nil {
				return err
			}
			items = append(items, out.Get(list).Items()...)
			if after = out.Get("next").Str(); after == "" {
				return nil
			}
		}
	})
	return items, out, err
}
