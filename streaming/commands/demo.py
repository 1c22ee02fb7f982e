"""`demo`: the whole monitor on this machine, against real consumers and real faults."""

import contextlib
import sys

import click


@click.command("demo")
@click.option("--keep", is_flag=True, help="Stay up at the end, until Ctrl-C.")
def demo_command(keep: bool) -> None:
    """Watch four groups on a real Kafka for about two minutes; members are killed, stalled and redeployed, one hangs.

    At the end, a table compares the alerts with the broker's own log. The exit code is 1 if an alert is missing, extra
    or off by more than a second. Needs Java and `make setup`, no Docker, and leaves nothing behind.
    """
    from streaming.demo.child import DemoError
    from streaming.demo.scenario import Scenario, all_well
    from streaming.demo.screen import Screen
    from streaming.demo.setting import Setting
    from streaming.demo.stop import Stop
    from streaming.embedded import EmbeddedBrokerError
    from streaming.embedded.java import JavaMissingError

    stop = Stop()
    try:
        with Screen() as screen, Setting() as setting:
            scenario = Scenario(setting, screen, stop)
            rows = scenario.play()
            screen.verdict(rows)
            if keep:
                screen.say(f"staying up: {setting.url}, Kafka at {setting.cluster.bootstrap_servers}; Ctrl-C ends it")
                with contextlib.suppress(KeyboardInterrupt):
                    scenario.stay()
            screen.rest()
            screen.say("ending all processes")
    except (DemoError, EmbeddedBrokerError, JavaMissingError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        sys.exit(130)
    good = all_well(rows)
    click.echo("the broker's log agrees with every alert" if good else "the broker's log and the alerts differ")
    sys.exit(not good)
