"""`env.unwrapped.task`: what others read from the reference's task, as views of native arrays."""

from dataclasses import FrozenInstanceError, make_dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from surefoot.envs import geometry
from surefoot.envs.family import rules
from surefoot.envs.family.config import COSTS, FamilyConfig
from surefoot.envs.family.env import FamilyEnv
from surefoot.safety_gymnasium import info

# Facts of the reference that no option changes: colours, lidar groups, scales of costs and rewards.
_FACTS: dict[str, dict[str, object]] = {
    "goal": {"color": (0, 1, 0, 1), "group": 9, "reward_goal": 1.0, "reward_distance": 1.0},
    "hazards": {"color": (0, 0, 1, 0.25), "group": 3, "cost": 1.0},
    "vases": {
        "color": (0, 1, 1, 1), "group": 4, "size": 0.1, "density": 0.001, "sink": 4e-5,
        "contact_cost": 1.0, "displace_cost": 0.0, "velocity_cost": 1.0, "velocity_threshold": 1e-4,
    },
    "buttons": {
        "color": (1, 0.5, 0, 1), "group": 1, "size": 0.1, "cost": 1.0, "reward_goal": 1.0,
        "reward_distance": 1.0,
    },
    "gremlins": {
        "color": (0.5, 0, 1, 1), "group": 5, "size": 0.1, "density": 0.001, "travel": 0.35,
        "contact_cost": 1.0,
    },
    "pillars": {"color": (0.5, 0.5, 1, 1), "group": 2, "size": 0.2, "height": 0.5, "cost": 1.0},
    "push_box": {
        "color": (1, 1, 0, 1), "group": 1, "null_dist": 0, "reward_box_dist": 1.0,
        "reward_box_goal": 1.0,
    },
    "circle": {"color": (0, 1, 0, 1), "group": 6, "radius": 1.5},
    "walls": {"color": (1, 1, 0, 1), "group": 10},
}  # fmt: skip
_FIXED_HEIGHTS = {"hazards": 0.02, "buttons": 0.1, "pillars": 0.5, "circle": 0.0}
_SINGLE = ("goal", "push_box", "circle")
_MISSING = ("model", "data", "world", "world_info", "random_generator")


class View:
    """Attributes that can be read; the reference's could be written too."""

    name = "task"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(
            f"{self.name}.{name} cannot be set; use make(..., config={{...}})"
        )

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _conf(name: str, **values: object) -> object:
    """A frozen record, as the reference's `lidar_conf`."""
    return make_dataclass(name, list(values), frozen=True)(**values)


class Agent(View):
    """The robot: `pos`, `vel` and `mat` in the world, and its sensors."""

    name = "agent"

    def __init__(self, env: FamilyEnv):
        c, model = env.config, env.simulation.model
        self._put(
            _env=env,
            base=f"assets/xmls/{c.robot}.xml",
            keepout=c.keepout("agent"),
            locations=[list(place) for place in c.positions.get("agent", ())],
            placements=None,
            rot=None,
            action_space=info.action_space(env),
            body_info=_conf("BodyInfo", nq=model.nq, nv=model.nv, nu=model.nu, nbody=model.nbody),
        )

    _env: FamilyEnv

    @property
    def pos(self) -> np.ndarray:
        return self._env.reading.position[0].copy()

    @property
    def vel(self) -> np.ndarray:
        planar = self._env.config.robot == "point"
        x, y, z = self._env.simulation.qvel[0, :3]
        return np.array([x, y, 0.0 if planar else z])

    @property
    def mat(self) -> np.ndarray:
        x, y = self._env.reading.rotation[0]
        return np.stack([x, y, np.cross(x, y)])

    def get_sensor(self, name: str) -> np.ndarray:
        """A sensor's numbers: of a hinge its angle, of a ball joint its quaternion."""
        simulation = self._env.simulation
        for group in simulation.robot.robot.sensors:
            if name in group.names and group.encoding in ("angle", "quaternion"):
                joint = simulation.model.sensor(name).objid[0]
                first = simulation.model.jnt_qposadr[joint]
                return simulation.qpos[0, first : first + (1 if group.encoding == "angle" else 4)]
        sensors = self.obs_sensor()
        if name not in sensors:
            raise ValueError(f"name={name!r} must be one of {', '.join(sensors)}")
        return sensors[name]

    def obs_sensor(self) -> dict[str, np.ndarray]:
        """All sensors as they are observed."""
        parts, first = info.observation_parts(self._env), 0
        out = {}
        for name in info.sensor_names(self._env):
            shape = parts[name].shape or ()
            size = int(np.prod(shape))
            out[name] = self._env.simulation.sensors[0, first : first + size].reshape(shape).copy()
            first += size
        return out

    def dist_xy(self, pos: np.ndarray) -> float:
        """Distance to a place on the floor."""
        return float(np.linalg.norm(np.asarray(pos)[:2] - self.pos[:2]))

    def is_alive(self) -> bool:
        fall = self._env.simulation.robot.fall
        return fall is None or self.pos[2] > fall


class Objects(View):
    """All objects of a kind, or the one: `pos`, `num`, `size`, `keepout`, `is_constrained`, …"""

    def __init__(self, env: FamilyEnv, kind: str):
        c = env.config
        constrained = c.kinds if c.constrained is None else c.constrained
        self._put(_env=env, _kind=kind, name="sigwalls" if kind == "walls" else kind)
        self._put(keepout=c.keepout(kind), placements=None, is_lidar_observed=kind in c.lidars)
        self._put(is_constrained=kind in COSTS and kind in constrained, is_meshed=False)
        self._put(locations=[list(place) for place in c.positions.get(kind, ())])
        self._put(**{k: np.array(v) if k == "color" else v for k, v in _FACTS[kind].items()})
        if kind not in _SINGLE:
            self._put(num=c.number(kind))
        if kind in ("goal", "hazards"):
            self._put(size=c.goal_size if kind == "goal" else c.hazard_size)
        elif kind == "push_box":
            size, density = env.simulation.robot.box
            self._put(size=size, density=density)
        elif kind == "buttons":
            self._put(resampling_delay=c.button_delay)
        elif kind == "walls":
            self._put(locate_factor=c.boundary, size=17.5 if c.task == "run" else 3.5)

    _env: FamilyEnv
    _kind: str
    name: str

    @property
    def pos(self) -> Any:
        """Where the centres are now: a list of [3], or one [3] for goal, box and circle."""
        env, kind = self._env, self._kind
        if kind == "walls":
            return None
        state = env.state()
        if kind in ("vases", "gremlins", "push_box"):
            points = state.bodies[0, :, :3]
        else:
            height = _FIXED_HEIGHTS.get(kind, env.config.goal_size / 2 + 0.01)
            floor = rules.points(env.config, state, kind)[0]
            points = np.column_stack([floor, np.full(len(floor), height)])
        return points[0] if kind in _SINGLE else list(points)

    @property
    def goal_button(self) -> int:
        return int(self._env.button[0])

    @property
    def timer(self) -> int:
        return int(self._env.timer[0])


class NavigationTask(View):
    """Robot, objects and settings of one environment, under the reference's names."""

    def __init__(self, env: FamilyEnv, flatten: bool):
        c: FamilyConfig = env.config
        parts = info.observation_parts(env)
        self._put(
            _env=env,
            agent=Agent(env),
            agent_name=c.robot.capitalize(),
            num_steps=c.max_episode_steps,
            action_noise=0.0,
            observe_vision=False,
            debug=False,
            observation_flatten=flatten,
            action_space=info.action_space(env),
            observation_space=info.observation_space(env) if flatten else parts,
            obs_info=_conf("ObservationInfo", obs_space_dict=parts),
            lidar_conf=_conf(
                "LidarConf",
                num_bins=geometry.BINS,
                max_dist=c.lidar_range,
                exp_gain=1.0,
                type="pseudo",
                alias=True,
            ),
            cost_conf=_conf("CostConf", constrain_indicator=True),
            reward_conf=_conf("RewardConf", reward_exception=-10.0, reward_clip=10.0),
            mechanism_conf=_conf(
                "MechanismConf",
                randomize_layout=c.layout_seed is None,
                continue_goal=True,
                terminate_resample_failure=True,
            ),
            placements_conf=_conf(
                "PlacementsConf", extents=[-c.extent, -c.extent, c.extent, c.extent], margin=0.0
            ),
            sim_conf=_conf("SimulationConf", frameskip_binom_n=10, frameskip_binom_p=1.0),
        )
        for kind in c.kinds:
            objects = Objects(env, kind)
            self._put(**{objects.name: objects})

    _env: FamilyEnv
    agent: Agent
    goal: Objects
    hazards: Objects
    vases: Objects
    buttons: Objects
    gremlins: Objects
    pillars: Objects
    push_box: Objects
    circle: Objects
    sigwalls: Objects
    num_steps: int
    action_space: spaces.Box
    observation_space: spaces.Space
    observation_flatten: bool
    obs_info: Any

    def __getattr__(self, name: str) -> Any:
        if name in _MISSING:
            raise AttributeError(
                f"task.{name}: the native task has no MuJoCo model of the whole world; read "
                "task.agent and task.hazards, or make another layout with config={...}"
            )
        raise AttributeError(f"{self._env.config.task} has no attribute task.{name}")

    @property
    def goal_achieved(self) -> bool:
        return bool(rules.arrive(self._env.config, self._env.state())[1][0])

    @property
    def last_dist_goal(self) -> float:
        """What the next reward subtracts from, in Goal and Button."""
        return float(self._env.previous[0, 0])

    def dist_goal(self) -> float:
        """Distance from the robot to the goal on the floor."""
        return self.agent.dist_xy(self._env.goal[0])

    def dist_box(self) -> float:
        """Distance from the robot to the box."""
        return float(np.linalg.norm(self.push_box.pos - self.agent.pos))

    def dist_box_goal(self) -> float:
        """Distance from the box to the goal."""
        return float(np.linalg.norm(self.push_box.pos - self.goal.pos))

    def obs(self) -> info.Observation:
        """The present observation."""
        flat = self._env.observe(np.arange(1))[0]
        return flat if self.observation_flatten else self.split(flat)

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """An observation vector as a dict of sensors and lidars."""
        return dict(spaces.unflatten(self.obs_info.obs_space_dict, flat))

    def _ego_xy(self, pos: np.ndarray) -> np.ndarray:
        """A place on the floor in the robot's frame."""
        place = np.asarray(pos, dtype=np.float64)[None, None, :2]
        return np.concatenate(rules.in_body(self._env.state(), place))[:, 0]

    def _obs_lidar_pseudo(self, positions: ArrayLike) -> np.ndarray:
        """The lidar of places on the floor."""
        ego = np.stack([self._ego_xy(place) for place in np.array(positions, ndmin=2)])
        return geometry.lidar(np, ego[None], self._env.config.lidar_range)[0]

    def _obs_lidar(self, positions: ArrayLike, group: int | None = None) -> np.ndarray:
        return self._obs_lidar_pseudo(positions)
